// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "backends/foreign/rules.hpp"
#include "core/checked.hpp"
#include "scheme/affine_words.hpp"

namespace fewbit::foreign {
namespace {

bool is_int(DType dtype, int bits) {
  return bits == 4 ? dtype == DType::u4 || dtype == DType::i4
                   : dtype == DType::u8 || dtype == DType::i8;
}

bool is_float_scale(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
}

WeightKind integer_kind(const Scheme& scheme) {
  const bool is_4bit = is_int(scheme.weight, 4);
  const std::int64_t group = scheme.scale->granularity.cols;
  switch (scheme.producer) {
    case Producer::gptq:
    case Producer::auto_round:
    case Producer::awq:
      return is_4bit ? WeightKind::int4 : WeightKind::int8;
    case Producer::compressed_tensors:
      if (!is_4bit) return WeightKind::int8;
      if (scheme.zero_points) {
        return group == 32 ? WeightKind::int4_g32_asym : WeightKind::int4_asym;
      }
      return group == 32 ? WeightKind::int4_g32 : WeightKind::int4;
    case Producer::gguf:
      // Q4_0 and Q8_0 with codes and scales apart.
      return is_4bit && group == 32 ? WeightKind::int4_g32
             : is_4bit              ? WeightKind::int4
                                    : WeightKind::int8;
    default:
      return WeightKind::other;
  }
}

WeightKind fp8_kind(const ScaleSpec& scale) {
  const Granularity grid = scale.granularity;
  if (scale.dtype == DType::f8_e8m0 && grid == Granularity{1, 32}) return WeightKind::mxfp8;
  if (!is_float_scale(scale.dtype)) return WeightKind::other;
  if (grid == Granularity{0, 0}) return WeightKind::fp8_tensor;
  if (grid == Granularity{1, 0}) return WeightKind::fp8_channel;
  if (grid == Granularity{128, 128}) return WeightKind::fp8_block;
  return WeightKind::other;
}

}  // namespace

WeightKind weight_kind(const Scheme& scheme) {
  if (scheme.ggml_type || scheme.pre_quant_scale || is_affine_words(scheme)) {
    return WeightKind::other;
  }
  if (!scheme.scale) {
    const bool plain = scheme.weight == DType::bf16 || scheme.weight == DType::f16;
    return plain ? WeightKind::plain : WeightKind::other;
  }
  const ScaleSpec& scale = *scheme.scale;
  if (scheme.weight == DType::f8_e4m3) return fp8_kind(scale);
  if (scheme.weight == DType::f4_e2m1) {
    if (scale.dtype == DType::f8_e4m3 && scale.granularity == Granularity{1, 16}) {
      return WeightKind::nvfp4;
    }
    const bool mx = scale.dtype == DType::f8_e8m0 && scale.granularity == Granularity{1, 32};
    return mx ? WeightKind::mxfp4 : WeightKind::other;
  }
  const bool integer = is_int(scheme.weight, 4) || is_int(scheme.weight, 8);
  if (!integer || !is_float_scale(scale.dtype) || scale.granularity.rows != 1) {
    return WeightKind::other;
  }
  return integer_kind(scheme);
}

ActivationKind activation_kind(const Scheme& scheme) {
  if (!scheme.activation) return ActivationKind::none;
  const WeightKind weight = weight_kind(scheme);
  if (integers.contains(weight)) {
    return scheme.activation == DType::i8 ? ActivationKind::int8 : ActivationKind::none;
  }
  if (scheme.activation == DType::f4_e2m1) {
    return weight == WeightKind::mxfp4 ? ActivationKind::mxfp4 : ActivationKind::nvfp4;
  }
  if (scheme.activation == DType::i8) return ActivationKind::int8;
  if (scheme.activation != DType::f8_e4m3) return ActivationKind::none;
  switch (weight) {
    case WeightKind::mxfp4:
    case WeightKind::mxfp8:
      return ActivationKind::mxfp8;
    case WeightKind::fp8_channel:
      return ActivationKind::fp8_token;
    case WeightKind::fp8_block:
      return ActivationKind::fp8_group;
    default:
      return ActivationKind::fp8_tensor;
  }
}

const char* weight_kind_name(WeightKind kind) {
  constexpr const char* names[] = {
      "plain", "int4",  "int4_g32",   "int4_asym",   "int4_g32_asym", "int8", "nvfp4",
      "mxfp4", "mxfp8", "fp8_tensor", "fp8_channel", "fp8_block",     "other"};
  return names[static_cast<std::size_t>(kind)];
}

const char* activation_kind_name(ActivationKind kind) {
  constexpr const char* names[] = {"16-bit",    "int8",  "fp8_tensor", "fp8_token",
                                   "fp8_group", "mxfp8", "nvfp4",      "mxfp4"};
  return names[static_cast<std::size_t>(kind)];
}

std::int64_t whole_scales(const MoeProblem& problem, bool hidden) {
  const auto grid = [](const Scheme& scheme) {
    return scheme.scale && !scheme.ggml_type ? scheme.scale->granularity : Granularity{};
  };
  const Scheme& scheme = hidden ? problem.gate_up : problem.down;
  const std::int64_t rows = std::max<std::int64_t>(grid(problem.gate_up).rows, 1);
  if (hidden && rows > 1) return 1;  // the last block of a whole matrix may be short
  const bool ordered = scheme.act_order == ActOrder::group;
  const std::int64_t columns = ordered ? 1 : std::max<std::int64_t>(grid(scheme).cols, 1);
  return hidden ? columns : std::lcm(rows, columns);
}

std::string unfit_text(std::int64_t value, std::int64_t unmet, std::int64_t scales, bool ordered) {
  if (value % scales != 0) {
    return fmt::format("{} ({:g} groups of {}: padding does not mend a cut one)", value,
                       static_cast<double>(value) / static_cast<double>(scales), scales);
  }
  if (ordered) return std::to_string(value);
  return fmt::format("{} (would fit if padded to {}, which the engine does not do)", value,
                     ceil_div(value, unmet) * unmet);
}

}  // namespace fewbit::foreign
