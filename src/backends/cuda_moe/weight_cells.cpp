// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/weight_cells.hpp"

#include <fmt/format.h>

#include "canonical/gguf_exact.hpp"
#include "core/checked.hpp"
#include "layout/cuda_f8_cells.hpp"
#include "scheme/affine_words.hpp"

namespace fewbit::cuda {
namespace {

bool is_f4(const Scheme& scheme, DType scale, std::int64_t group) {
  return scheme.weight == DType::f4_e2m1 && scheme.scale && !scheme.ggml_type &&
         scheme.scale->dtype == scale &&
         scheme.scale->granularity == Granularity{.rows = 1, .cols = group} &&
         !scheme.zero_points && !scheme.pre_quant_scale && scheme.act_order == ActOrder::none;
}

// Empty: no codes of layout cuda_int_cells.
std::optional<CellKind> int_kind(DType weight) {
  switch (weight) {
    case DType::u4:
    case DType::i4:
      return CellKind::int4;
    case DType::u8:
    case DType::i8:
      return CellKind::int8;
    case DType::u2:
      return CellKind::ternary;
    case DType::nf3:
      return CellKind::nf3;
    default:
      return std::nullopt;
  }
}

bool is_int(const Scheme& scheme) {
  return int_kind(scheme.weight) && scheme.scale && !scheme.ggml_type && !scheme.pre_quant_scale &&
         scheme.packing != Packing::shorts_gemv;
}

// What codes without zero points of their own are offset by.
std::int32_t usual_zero(DType weight) {
  if (weight == DType::u2) return 1;
  return weight == DType::u4 ? 8 : weight == DType::u8 ? 128 : 0;
}

// One scale for a whole ternary matrix, as BitNet has.
bool has_tensor_scale(const Scheme& scheme) {
  return scheme.weight == DType::u2 && scheme.scale->granularity == Granularity{};
}

// The types of scales that cells hold, or (of a tensor) that a global scale is multiplied by.
bool takes_scale(const Scheme& scheme) {
  const DType scale = scheme.scale->dtype;
  if (scale == DType::f16 || scale == DType::bf16) return true;
  return scale == DType::f32 ? has_tensor_scale(scheme)
                             : scale == DType::f8_e4m3 && scheme.weight == DType::nf3;
}

std::vector<Refusal> int_refusals(const std::string& which, const Scheme& scheme) {
  std::vector<Refusal> refusals;
  const auto add = [&](const char* needs, std::string has) {
    refusals.push_back({Reason::weight, which + " " + needs, std::move(has)});
  };
  const ScaleSpec& scale = *scheme.scale;
  const bool low_bits = dtype_bits(scheme.weight) < 4;
  if (!takes_scale(scheme)) {
    add(scheme.weight == DType::nf3 ? "with e4m3, f16 or bf16 scales" : "with f16 or bf16 scales",
        std::string(dtype_name(scale.dtype)));
  }
  if (low_bits && scheme.zero_points) add("without zero points", scheme_text(scheme));
  if (low_bits && is_ordered(scheme)) add("without act-order", scheme_text(scheme));
  if (has_tensor_scale(scheme)) {
    // As a factor of the global scale.
  } else if (scale.granularity.rows != 1) {
    add("with scales a row", scheme_text(scheme));
  } else if (scale.granularity.cols % 32 != 0) {
    add("in groups of a multiple of 32", std::to_string(scale.granularity.cols));
  }
  if (!scheme.zero_points && scheme.zero_point != usual_zero(scheme.weight)) {
    refusals.push_back({Reason::weight,
                        fmt::format("{} with zero point {}", which, usual_zero(scheme.weight)),
                        zero_point_text(scheme)});
  }
  return refusals;
}

bool is_f8(const Scheme& scheme) {
  return scheme.weight == DType::f8_e4m3 && scheme.scale && !scheme.ggml_type &&
         !scheme.pre_quant_scale && !scheme.zero_points && scheme.act_order == ActOrder::none;
}

// Cells of a group of k (0: a row) that share scales. NF3 comes in groups of 32.
int scale_cells_of(CellKind kind, std::int64_t group) {
  if (kind == CellKind::nf3) return 1;
  if (group % 128 == 0) return 4;
  return kind == CellKind::ternary && group % 64 == 0 ? 2 : 1;
}

std::optional<F8Scales> f8_scales_of(const Scheme& scheme) {
  const DType scale = scheme.scale->dtype;
  if (scale != DType::f32 && scale != DType::bf16 && scale != DType::f16) return std::nullopt;
  const Granularity& shape = scheme.scale->granularity;
  constexpr std::int64_t block = CudaF8Cells::block;
  if (shape == Granularity{.rows = block, .cols = block}) return F8Scales::block;
  if (shape == Granularity{.rows = 1, .cols = 0}) return F8Scales::row;
  if (shape == Granularity{.rows = 0, .cols = 0}) return F8Scales::tensor;
  return std::nullopt;
}

}  // namespace

Scheme read_as(const Scheme& scheme) { return gguf_exact_scheme(scheme).value_or(scheme); }

std::optional<CellFormat> cells_of(const Scheme& stored) {
  const Scheme scheme = read_as(stored);
  if (is_f4(scheme, DType::f8_e4m3, 16)) return nvfp4_cells;
  if (is_f4(scheme, DType::f8_e8m0, 32)) return mxfp4_cells;
  if (is_f8(scheme)) {
    const bool mx = scheme.scale->dtype == DType::f8_e8m0 &&
                    scheme.scale->granularity == Granularity{.rows = 1, .cols = 32};
    if (mx) return CellFormat{.kind = CellKind::mxfp8};
    const std::optional<F8Scales> scales = f8_scales_of(scheme);
    if (!scales) return std::nullopt;
    return CellFormat{.kind = CellKind::f8, .f8 = *scales};
  }
  if (!is_int(scheme) || !int_refusals("", scheme).empty()) return std::nullopt;
  CellFormat format;
  format.kind = *int_kind(scheme.weight);
  format.ints.bits = dtype_bits(scheme.weight);
  format.ints.scale_cells = scale_cells_of(format.kind, scheme.scale->granularity.cols);
  format.ints.zeros = scheme.zero_points;
  format.f16_scales = scheme.scale->dtype == DType::f16 && !has_tensor_scale(scheme);
  return format;
}

void weight_refusals(const std::string& which, const Scheme& stored,
                     std::vector<Refusal>& refusals) {
  const Scheme scheme = read_as(stored);
  if (cells_of(scheme)) return;
  if (is_int(scheme)) {
    const std::vector<Refusal> own = int_refusals(which, scheme);
    refusals.insert(refusals.end(), own.begin(), own.end());
    return;
  }
  refusals.push_back({Reason::weight,
                      which + " in e2m1 with an e4m3 scale a group of 16 or an e8m0 scale a group "
                              "of 32, in int4, int8, u2 or nf3 with scales, or in e4m3 with an "
                              "e8m0 scale a group of 32 or f32, bf16 or f16 scales a block of "
                              "128x128, a row or the tensor",
                      scheme_text(scheme)});
}

const char* layout_name(const CellFormat& format) {
  switch (format.kind) {
    case CellKind::f8:
    case CellKind::mxfp8:
      return "cuda_f8_cells";
    case CellKind::int4:
      return "cuda_int4_cells";
    case CellKind::int8:
      return "cuda_int8_cells";
    case CellKind::ternary:
      return "cuda_ternary_cells";
    case CellKind::nf3:
      return "cuda_nf3_cells";
    default:
      return "cuda_f4_cells";
  }
}

bool is_ordered(const Scheme& scheme) {
  return scheme.act_order == ActOrder::group && scheme.scale && scheme.scale->granularity.cols != 0;
}

std::int64_t size_multiple(const CellFormat& format) {
  // Of integers the last group may be cut; of f8 the 16 rows of a unit share a scale.
  return format.kind == CellKind::nvfp4 || has_int_cells(format.kind) ? 16 : 32;
}

std::int64_t packed_bytes(const CellFormat& format, Dims half) {
  const std::int64_t multiple = format.cell_multiple();
  const std::int64_t cells = ceil_div(half.k, 32 * multiple) * multiple;
  return ceil_div(half.n, std::int64_t{16}) * cells * format.cell_bytes();
}

}  // namespace fewbit::cuda
