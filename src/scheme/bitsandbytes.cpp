// SPDX-License-Identifier: Apache-2.0
// bitsandbytes: NF4 in 4 bits, and 8-bit rows. Its own 4-bit float is named only.
#include <fmt/format.h>

#include "core/checked.hpp"
#include "core/convert.hpp"
#include "core/float_convert.hpp"
#include "scheme/bitsandbytes_state.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

bool has_shape(const TensorInfo* info, DType dtype, std::int64_t elements) {
  if (info == nullptr || info->dtype != dtype) return false;
  const auto found = shape_elements(info->shape);
  return found && *found == elements;
}

std::string found_text(const TensorInfo* info) {
  if (info == nullptr) return "missing";
  return fmt::format("{} {}", dtype_name(info->dtype), shape_text(info->shape));
}

// The stored codebook is the one that fewbit knows.
bool is_nf4_map(const Checkpoint& checkpoint, const TensorInfo& map) {
  std::vector<float> values(16);
  const Tensor tensor = checkpoint.tensor(map);
  if (!convert_to_f32(map.dtype, tensor.view.bytes, values)) return false;
  for (std::size_t code = 0; code < values.size(); ++code) {
    if (values[code] != nf4_to_f32(static_cast<std::uint8_t>(code))) return false;
  }
  return true;
}

std::string nested_obstacle(const Draft& draft, const BitsandbytesState& state,
                            std::int64_t scales) {
  const std::int64_t groups = ceil_div(scales, state.nested_block);
  const TensorInfo* absmax = draft.tensor("weight.nested_absmax");
  if (!has_shape(absmax, DType::f32, groups)) {
    return fmt::format("weight.nested_absmax is {}, expected {} f32", found_text(absmax), groups);
  }
  const TensorInfo* map = draft.tensor("weight.nested_quant_map");
  if (has_shape(map, DType::f32, 256)) return "";
  return fmt::format("weight.nested_quant_map is {}, expected 256 f32", found_text(map));
}

// Why the 4-bit parts do not fit together; sets n and k.
std::string four_bit_obstacle(const Checkpoint& checkpoint, Draft& draft,
                              const BitsandbytesState& state) {
  draft.module.n = state.shape[0];
  draft.module.k = state.shape[1];
  if (state.quant_type != "nf4") {
    return fmt::format(
        "bitsandbytes quant_type {}: its codebook is not that of e2m1, and is not "
        "decoded; nf4 is",
        state.quant_type);
  }
  const auto codes = checked_mul(state.shape[0], state.shape[1]);
  const TensorInfo* weight = draft.tensor("weight");
  if (!codes || !has_shape(weight, DType::u8, ceil_div(*codes, std::int64_t{2}))) {
    return fmt::format("weight is {}, expected u8 with two codes a byte of {}", found_text(weight),
                       shape_text(state.shape));
  }
  const std::int64_t scales = ceil_div(*codes, state.block);
  const DType type = state.nested ? DType::u8 : DType::f32;
  const TensorInfo* absmax = draft.tensor("weight.absmax");
  if (!has_shape(absmax, type, scales)) {
    return fmt::format("weight.absmax is {}, expected {} {}, one for {} codes", found_text(absmax),
                       scales, dtype_name(type), state.block);
  }
  const TensorInfo* map = draft.tensor("weight.quant_map");
  if (!has_shape(map, DType::f32, 16) || !is_nf4_map(checkpoint, *map)) {
    return "weight.quant_map is not the codebook of NF4";
  }
  std::string nested = state.nested ? nested_obstacle(draft, state, scales) : "";
  if (!nested.empty()) return nested;
  constexpr std::string_view single[] = {"weight.absmax", "weight.quant_map",
                                         "weight.quant_state.bitsandbytes__nf4"};
  constexpr std::string_view twofold[] = {"weight.absmax", "weight.quant_map",
                                          "weight.quant_state.bitsandbytes__nf4",
                                          "weight.nested_absmax", "weight.nested_quant_map"};
  return unapplied_text(draft, "bitsandbytes NF4",
                        state.nested ? std::span<const std::string_view>(twofold)
                                     : std::span<const std::string_view>(single));
}

void claim_four_bit(const Checkpoint& checkpoint, Draft& draft) {
  Scheme scheme;
  scheme.producer = Producer::bitsandbytes;
  scheme.weight = DType::nf4;
  scheme.packing = Packing::flat_high;
  const auto state = read_bitsandbytes_state(checkpoint, draft.module);
  if (!state) {
    draft.refuse(scheme, "bitsandbytes: " + state.error().what);
    return;
  }
  std::string obstacle = four_bit_obstacle(checkpoint, draft, *state);
  scheme.scale = ScaleSpec{DType::f32, Granularity{1, bitsandbytes_group(*state)}, false,
                           ScaleDirection::multiply};
  if (obstacle.empty()) {
    draft.claim(scheme);
  } else {
    draft.refuse(scheme, std::move(obstacle));
  }
}

std::string eight_bit_obstacle(const Checkpoint& checkpoint, Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  if (weight == nullptr || weight->dtype != DType::i8 || weight->shape.size() != 2) {
    return fmt::format("weight is {}, expected i8 [rows, columns]", found_text(weight));
  }
  draft.module.n = weight->shape[0];
  draft.module.k = weight->shape[1];
  const TensorInfo* scale = draft.tensor("SCB");
  if (!has_shape(scale, DType::f32, draft.module.n)) {
    return fmt::format("SCB is {}, expected {} f32", found_text(scale), draft.module.n);
  }
  constexpr std::string_view applied[] = {"SCB", "weight_format"};
  if (std::string odd = unapplied_text(draft, "bitsandbytes int8", applied); !odd.empty()) {
    return odd;
  }
  const TensorInfo* format = draft.tensor("weight_format");
  if (format == nullptr) return "";
  const Tensor tensor = checkpoint.tensor(*format);
  for (const std::byte byte : tensor.view.bytes) {
    if (byte == std::byte{0}) continue;
    return fmt::format("weight_format is {}: an order of a kernel, not row after row",
                       std::to_integer<int>(byte));
  }
  return "";
}

void claim_eight_bit(const Checkpoint& checkpoint, Draft& draft) {
  Scheme scheme;
  scheme.producer = Producer::bitsandbytes;
  scheme.weight = DType::i8;
  scheme.scale = ScaleSpec{DType::f32, Granularity{1, 0}, false, ScaleDirection::multiply};
  scheme.activation = DType::i8;
  std::string obstacle = eight_bit_obstacle(checkpoint, draft);
  if (obstacle.empty()) {
    draft.claim(scheme);
  } else {
    draft.refuse(scheme, std::move(obstacle));
  }
}

}  // namespace

void claim_bitsandbytes(Inventory& inventory) {
  if (inventory.checkpoint == nullptr) return;
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !draft.has("weight")) continue;
    if (draft.has("weight.absmax")) {
      claim_four_bit(*inventory.checkpoint, draft);
    } else if (draft.has("SCB")) {
      claim_eight_bit(*inventory.checkpoint, draft);
    }
  }
}

}  // namespace fewbit
