// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/checked.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/scale_fit.hpp"
#include "scheme/whole_words.hpp"

namespace fewbit {
namespace {

std::string text(const TensorInfo& info) {
  return fmt::format("{} {}", dtype_name(info.dtype), shape_text(info.shape));
}

// Shape of one matrix's part behind the experts.
Shape one_matrix(const Module& module, const Shape& shape) {
  if (module.experts == 0 || shape.empty() || shape[0] != module.experts) return shape;
  return Shape(shape.begin() + 1, shape.end());
}

std::string read_scale(const Draft& draft, const IntegerOptions& options, Scheme& scheme) {
  const Module& module = draft.module;
  const TensorInfo* scale = integer_part(draft, "weight_scale");
  if (scale == nullptr) return "codes without weight_scale";
  if (scale->dtype != DType::f32 && scale->dtype != DType::f16 && scale->dtype != DType::bf16) {
    return fmt::format("weight_scale {}, expected f32, f16 or bf16", text(*scale));
  }
  const ScaledMatrix matrix{module.experts, module.n, module.k, false, is_pair(module)};
  std::optional<Granularity> declared;
  if (options.group_size) declared = Granularity{1, *options.group_size};
  const auto fit = fit_scale(matrix, scale->shape, declared);
  if (!fit || fit->pieces > 1 || (fit->granularity.rows > 1 && fit->granularity.cols != 0)) {
    return fmt::format(
        "weight_scale {} for a matrix [{}, {}], expected one a tensor ([1]), a row ([{}, 1]) or a "
        "{}",
        text(*scale), module.n, module.k, module.n,
        options.group_size ? fmt::format("group of {} ({})", *options.group_size,
                                         group_scales_text(module.experts, module.n, module.k,
                                                           *options.group_size))
                           : std::string("group of columns"));
  }
  scheme.scale = ScaleSpec{scale->dtype, fit->granularity};
  return "";
}

// Zero points: i8 like the scales, or in words packed along n.
std::string read_zero_points(const Draft& draft, const IntegerOptions& options, Scheme& scheme) {
  const Module& module = draft.module;
  const TensorInfo* zero = integer_part(draft, "weight_zero_point");
  if (zero == nullptr) {
    return options.symmetric == false ? "symmetric is false, but weight_zero_point is missing" : "";
  }
  scheme.zero_points = true;
  const Granularity& group = scheme.scale->granularity;
  const std::int64_t rows = group.rows == 0 ? 1 : ceil_div(module.n, group.rows);
  const std::int64_t cols = group.cols == 0 ? 1 : ceil_div(module.k, group.cols);
  const Shape shape = one_matrix(module, zero->shape);
  const Shape plain = {rows, cols};
  const bool is_plain = shape == plain || (cols == 1 && shape == Shape{rows});
  if (zero->dtype == DType::i8 && is_plain) return "";
  if (scheme.packing != Packing::words_row) {
    return fmt::format("weight_zero_point {}, expected i8 {}", text(*zero), shape_text(plain));
  }
  // In the form of the codes, where their number tells it.
  const std::int64_t words = integer_part(draft, "weight_packed")->shape.back();
  const int bits = dtype_bits(scheme.weight);
  std::string expected;
  for (const bool whole : {false, true}) {
    if (words != words_of_codes(module.k, bits, whole)) continue;
    const Shape packed = {words_of_codes(rows, bits, whole), cols};
    if (zero->dtype == DType::i32 && shape == packed) return "";
    if (expected.empty()) expected = shape_text(packed);
  }
  return fmt::format("weight_zero_point {}, expected i32 {} (packed along rows) or i8 {}",
                     text(*zero), expected, shape_text(plain));
}

std::string read_act_order(const Inventory& inventory, const Draft& draft,
                           const IntegerOptions& options, Scheme& scheme) {
  const Module& module = draft.module;
  const TensorInfo* g_idx = integer_part(draft, "weight_g_idx");
  if (g_idx == nullptr) {
    if (options.act_order == ActOrder::group) {
      return "actorder is group, but weight_g_idx is missing";
    }
    scheme.act_order = options.act_order;
    return "";
  }
  const Shape shape = one_matrix(module, g_idx->shape);
  const bool fits = g_idx->dtype == DType::i32 && shape == Shape{module.k};
  const bool unset = fits && is_unset_group_index(inventory, *g_idx);
  const bool ordered = options.act_order == ActOrder::static_groups;
  scheme.act_order = !unset ? ActOrder::group : ordered ? options.act_order : ActOrder::none;
  if (fits) return "";
  return fmt::format("weight_g_idx {}, expected i32 [{}]", text(*g_idx), module.k);
}

constexpr std::string_view known_suffixes[] = {
    "weight",       "weight_packed",     "packed", "weight_scale", "scale",
    "weight_shape", "weight_zero_point", "shape",  "zero_point",   "weight_g_idx",
    "g_idx"};

std::string find_unknown(const Module& module) {
  for (const Module::Part& part : module.parts) {
    const auto end = std::end(known_suffixes);
    const bool known = std::find(std::begin(known_suffixes), end, part.suffix) != end ||
                       is_activation_suffix(part.suffix);
    if (!known && is_quantization_suffix(part.suffix)) {
      return fmt::format("{} beside integer codes: what it does to the weights is not known",
                         part.suffix);
    }
  }
  return "";
}

}  // namespace

bool is_unset_group_index(const Inventory& inventory, const TensorInfo& g_idx) {
  if (g_idx.dtype != DType::i32 || inventory.checkpoint == nullptr) return false;
  const PassingTensor tensor(*inventory.checkpoint, g_idx);
  const auto bytes = tensor.bytes();
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(),
                                       [](std::byte byte) { return byte == std::byte{0xFF}; });
}

const TensorInfo* integer_part(const Draft& draft, std::string_view suffix) {
  const TensorInfo* found = draft.tensor(suffix);
  constexpr std::string_view prefix = "weight_";
  if (found != nullptr || !suffix.starts_with(prefix)) return found;
  return draft.tensor(suffix.substr(prefix.size()));
}

std::string read_integer_parts(const Inventory& inventory, const Draft& draft,
                               const IntegerOptions& options, Scheme& scheme) {
  if (std::string odd = find_unknown(draft.module); !odd.empty()) return odd;
  if (std::string odd = read_scale(draft, options, scheme); !odd.empty()) return odd;
  if (std::string odd = read_zero_points(draft, options, scheme); !odd.empty()) return odd;
  return read_act_order(inventory, draft, options, scheme);
}

void claim_int8(const Inventory& inventory, Draft& draft, Producer producer,
                const IntegerOptions& options) {
  Module& module = draft.module;
  const TensorInfo& weight = *draft.tensor("weight");
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = DType::i8;
  scheme.activation = options.activation;
  std::string odd;
  if (weight.shape.size() == 2 || (weight.shape.size() == 3 && module.expert == all_experts)) {
    module.n = weight.shape[weight.shape.size() - 2];
    module.k = weight.shape.back();
    if (weight.shape.size() == 3) module.experts = weight.shape[0];
    odd = read_integer_parts(inventory, draft, options, scheme);
  } else {
    odd = fmt::format("weight {}, expected [rows, columns]", text(weight));
  }
  if (odd.empty()) {
    draft.claim(scheme);
  } else {
    draft.refuse(scheme, std::move(odd));
  }
}

}  // namespace fewbit
