// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/weight_form.hpp"

#include <fmt/format.h>

#include "canonical/gguf_exact.hpp"
#include "core/float_types.hpp"
#include "layout/cpu_lane16.hpp"
#include "scheme/affine_words.hpp"

namespace fewbit::cpu {
namespace {

constexpr std::int64_t step = CpuF4Lane16::step;

std::optional<Lane16Codes> codes_of(const Scheme& scheme) {
  switch (scheme.weight) {
    case DType::f4_e2m1: {
      const ScaleSpec nvfp4{.dtype = DType::f8_e4m3,
                            .granularity = {.rows = 1, .cols = step},
                            .has_global = scheme.scale->has_global,
                            .global_direction = scheme.scale->global_direction};
      return scheme.scale == nvfp4 ? Lane16Codes::nvfp4 : Lane16Codes::f4_e2m1;
    }
    case DType::i4:
    case DType::u4:
      return scheme.zero_points ? Lane16Codes::int4_zeros : Lane16Codes::int4;
    case DType::i8:
    case DType::u8:
      return scheme.zero_points ? Lane16Codes::int8_zeros : Lane16Codes::int8;
    case DType::f8_e4m3:
      return Lane16Codes::f8_e4m3;
    case DType::nf3:
      return Lane16Codes::nf3;
    case DType::u2:
      return Lane16Codes::ternary;
    default:
      return std::nullopt;
  }
}

// Ids of GGUF's types.
constexpr int q4_k = 12;
constexpr int q6_k = 14;

// Blocks that are kept as they are.
std::optional<WeightForm> block_form(const Scheme& scheme) {
  WeightForm form{.codes = Lane16Codes::q4_k, .scale = Lane16Scale::with_codes, .group = 32};
  if (scheme.ggml_type == q4_k) return form;
  if (scheme.ggml_type != q6_k) return std::nullopt;
  form.codes = Lane16Codes::q6_k;
  form.group = 16;
  return form;
}

bool is_integer(DType weight) {
  return weight == DType::i4 || weight == DType::u4 || weight == DType::i8 || weight == DType::u8;
}
bool is_unsigned(DType weight) { return weight == DType::u4 || weight == DType::u8; }

// What codes without zero points of their own are offset by.
std::int32_t usual_zero(DType weight) {
  if (weight == DType::u2) return 1;
  if (weight == DType::u4) return 8;
  return weight == DType::u8 ? 128 : 0;
}

std::optional<Lane16Scale> lane_scale(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return Lane16Scale::f8_e4m3;
    case DType::f8_e8m0:
      return Lane16Scale::f8_e8m0;
    case DType::f16:
      return Lane16Scale::f16;
    case DType::bf16:
      return Lane16Scale::bf16;
    case DType::f32:
      return Lane16Scale::f32;
    default:
      return std::nullopt;
  }
}

// Matrices whose columns are all of one group have no order.
bool is_ordered(const Scheme& scheme) {
  return scheme.act_order == ActOrder::group && scheme.scale->granularity.cols > 0;
}

std::string scale_text(const ScaleSpec& scale) {
  return fmt::format("{} scales for {} x {}", dtype_name(scale.dtype), scale.granularity.rows,
                     scale.granularity.cols);
}

// Needs of scales and zero points, of codes that have a form. add(what it needs, what it has).
template <class Add>
void check_scales(const Scheme& scheme, const Add& add) {
  const Granularity& shape = scheme.scale->granularity;
  if (!lane_scale(scheme.scale->dtype)) {
    add("with e4m3, e8m0, f16, bf16 or f32 scales", scale_text(*scheme.scale));
  }
  if (shape.rows > 1 && shape.rows % CpuF4Lane16::block_rows != 0) {
    add("with a scale a row, for all rows or for a multiple of 16", scale_text(*scheme.scale));
  }
  if (shape.cols > 0 && shape.cols % step != 0) {
    add("in groups of a multiple of 16", std::to_string(shape.cols));
  }
  if (scheme.zero_points && !is_integer(scheme.weight)) {
    add("without zero points", scheme_text(scheme));
  }
  if (scheme.weight == DType::nf3 && shape.rows != 1) {
    add("with a scale a row, since nf3 has no code of zero", scale_text(*scheme.scale));
  }
  if (is_ordered(scheme) && dtype_bits(scheme.weight) < 4) {
    add("without act-order", scheme_text(scheme));
  }
  if (scheme.zero_points && shape.rows != 1) {
    add("with zero points a row", scale_text(*scheme.scale));
  }
  if (!scheme.zero_points && scheme.zero_point != usual_zero(scheme.weight)) {
    add(fmt::format("with zero point {}", usual_zero(scheme.weight)), zero_point_text(scheme));
  }
}

// Needs of the scheme by itself.
std::vector<Refusal> scheme_refusals(const std::string& which, const Scheme& scheme,
                                     const char* taken = all_forms) {
  std::vector<Refusal> refusals;
  const auto add = [&](std::string needs, std::string has) {
    refusals.push_back({Reason::weight, which + " " + std::move(needs), std::move(has)});
  };
  if (scheme.pre_quant_scale) {
    add("without a scale for the activations (pre_quant_scale)", scheme_text(scheme));
  }
  const bool plain = is_16_or_32_bit_float(scheme.weight) && !scheme.ggml_type;
  if (block_form(scheme) || (plain && !scheme.scale)) return refusals;
  if (plain || scheme.ggml_type || !scheme.scale || !codes_of(scheme) ||
      scheme.packing == Packing::shorts_gemv) {
    add(taken, scheme_text(scheme));
    return refusals;
  }
  check_scales(scheme, add);
  return refusals;
}

}  // namespace

Scheme read_as(const Scheme& scheme) { return gguf_exact_scheme(scheme).value_or(scheme); }

std::optional<WeightForm> form_of(const Scheme& stored) {
  const Scheme scheme = read_as(stored);
  if (scheme.ggml_type && !scheme.pre_quant_scale) return block_form(scheme);
  if (!scheme.scale || !scheme_refusals("", scheme).empty()) return std::nullopt;
  const Granularity& shape = scheme.scale->granularity;
  return WeightForm{
      .codes = *codes_of(scheme),
      .scale = shape.rows == 1 ? *lane_scale(scheme.scale->dtype) : Lane16Scale::f32_blocks,
      .scale_dtype = scheme.scale->dtype,
      .scale_rows = shape.rows,
      .group = std::max<std::int64_t>(shape.cols, 0),
      .offset_codes = is_unsigned(scheme.weight),
      .zeros = scheme.zero_points,
      .ordered = is_ordered(scheme),
  };
}

void form_refusals(const std::string& which, const Scheme& stored, const std::string& k_name,
                   std::int64_t k, std::vector<Refusal>& refusals, const char* taken) {
  const Scheme scheme = read_as(stored);
  const std::vector<Refusal> own = scheme_refusals(which, scheme, taken);
  refusals.insert(refusals.end(), own.begin(), own.end());
  const auto divides = [&](std::int64_t number, const char* why) {
    if (k % number == 0) return;
    refusals.push_back(
        {Reason::shape, fmt::format("{} % {} = 0{}", k_name, number, why), std::to_string(k)});
  };
  if (!own.empty()) return;
  if (scheme.ggml_type) return divides(256, "");
  if (!scheme.scale) return;
  divides(step, "");
  if (is_ordered(scheme)) divides(scheme.scale->granularity.cols, " with act-order");
}

const char* layout_name(const Scheme& scheme) {
  const auto form = form_of(scheme);
  if (!form) return "row_major";
  switch (form->codes) {
    case Lane16Codes::nvfp4:
    case Lane16Codes::f4_e2m1:
      return "cpu_f4_lane16";
    case Lane16Codes::int4:
    case Lane16Codes::int4_zeros:
      return "cpu_int4_lane16";
    case Lane16Codes::int8:
    case Lane16Codes::int8_zeros:
      return "cpu_int8_lane16";
    case Lane16Codes::nf3:
      return "cpu_nf3_lane16";
    case Lane16Codes::ternary:
      return "cpu_ternary_lane16";
    case Lane16Codes::q4_k:
      return "cpu_q4_k_lane16";
    case Lane16Codes::q6_k:
      return "cpu_q6_k_lane16";
    default:
      return "cpu_f8_lane16";
  }
}

}  // namespace fewbit::cpu
