// SPDX-License-Identifier: Apache-2.0
#include "scheme/bitsandbytes_state.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "checkpoint/json.hpp"
#include "checkpoint/json_text.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"

namespace fewbit {
namespace {

Error bad_key(std::string_view key, const Json* value, std::string_view expected,
              std::string_view where) {
  return Error{
      ErrorCode::corrupt,
      fmt::format("{} is {}, expected {}", key,
                  value != nullptr ? value_text(*value) : std::string("missing"), expected),
      std::string(where)};
}

Result<std::int64_t> size_of(const Json& state, std::string_view key, std::string_view where) {
  const Json* value = state.find(key);
  const auto size = value != nullptr ? value->as_int64() : std::nullopt;
  if (size && *size > 0) return *size;
  return bad_key(key, value, "a size above 0", where);
}

Result<Shape> matrix_of(const Json& state, std::string_view where) {
  const Json* value = state.find("shape");
  const Json::Array* list = value != nullptr ? value->as_array() : nullptr;
  Shape shape;
  if (list != nullptr) {
    for (const Json& item : *list) shape.push_back(item.as_int64().value_or(0));
  }
  const bool good = shape.size() == 2 && shape[0] > 0 && shape[1] > 0;
  if (!good) return bad_key("shape", value, "[rows, columns]", where);
  return shape;
}

Result<void> read_nested(const Json& json, BitsandbytesState& state, std::string_view where) {
  state.nested = json.find("nested_blocksize") != nullptr;
  if (!state.nested) return {};
  FEWBIT_TRY(state.nested_block, size_of(json, "nested_blocksize", where));
  const Json* offset = json.find("nested_offset");
  const auto value = offset != nullptr ? offset->as_double() : std::nullopt;
  if (!value || !std::isfinite(*value)) return bad_key("nested_offset", offset, "a number", where);
  state.nested_offset = *value;
  return {};
}

Result<std::vector<float>> read_floats(const Checkpoint& checkpoint, const Module& module,
                                       std::string_view suffix, std::int64_t count) {
  const std::string name(module.part(suffix));
  FEWBIT_TRY(const Tensor tensor, checkpoint.tensor(name));
  if (tensor.view.dtype != DType::f32) {
    return Error{ErrorCode::corrupt,
                 fmt::format("dtype is {}, expected f32", dtype_name(tensor.view.dtype)), name};
  }
  std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
  if (static_cast<std::int64_t>(values.size()) != count) {
    return Error{ErrorCode::corrupt, fmt::format("{} values, expected {}", values.size(), count),
                 name};
  }
  FEWBIT_TRY(convert_to_f32(DType::f32, tensor.view.bytes, values));
  return values;
}

Result<std::vector<float>> nested_scales(const Checkpoint& checkpoint, const Module& module,
                                         const BitsandbytesState& state, std::int64_t count) {
  FEWBIT_TRY(const Tensor codes, checkpoint.tensor(module.part("weight.absmax")));
  if (codes.view.dtype != DType::u8 ||
      static_cast<std::int64_t>(codes.view.bytes.size()) != count) {
    return Error{ErrorCode::corrupt,
                 fmt::format("{} {}, expected u8 [{}]", dtype_name(codes.view.dtype),
                             shape_text(codes.view.shape), count),
                 std::string(module.part("weight.absmax"))};
  }
  FEWBIT_TRY(const auto map, read_floats(checkpoint, module, "weight.nested_quant_map", 256));
  FEWBIT_TRY(const auto factors, read_floats(checkpoint, module, "weight.nested_absmax",
                                             ceil_div(count, state.nested_block)));
  std::vector<float> scales(static_cast<std::size_t>(count));
  const auto offset = static_cast<float>(state.nested_offset);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto code = std::to_integer<std::size_t>(codes.view.bytes[i]);
    scales[i] = map[code] * factors[i / static_cast<std::size_t>(state.nested_block)] + offset;
  }
  return scales;
}

}  // namespace

std::int64_t bitsandbytes_group(const BitsandbytesState& state) {
  return std::gcd(state.shape[1], state.block);
}

std::string_view bitsandbytes_state_part(const Module& module) {
  for (const std::string_view name :
       {"weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"}) {
    if (!module.part(name).empty()) return name;
  }
  return {};
}

Result<BitsandbytesState> read_bitsandbytes_state(const Checkpoint& checkpoint,
                                                  const Module& module) {
  const std::string_view name = module.part(bitsandbytes_state_part(module));
  if (name.empty()) {
    return Error{ErrorCode::not_found, "weight.quant_state is missing", module.name};
  }
  FEWBIT_TRY(const Tensor tensor, checkpoint.tensor(name));
  constexpr std::size_t most_bytes = 4096;
  if (tensor.view.bytes.size() > most_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("{} bytes, expected at most {}", tensor.view.bytes.size(), most_bytes),
                 std::string(name)};
  }
  const std::string text(reinterpret_cast<const char*>(tensor.view.bytes.data()),
                         tensor.view.bytes.size());
  FEWBIT_TRY(const Json json, Json::parse(text, std::string(name)));
  BitsandbytesState state;
  const Json* type = json.find("quant_type");
  if (type == nullptr || type->as_string() == nullptr) {
    return bad_key("quant_type", type, "nf4 or fp4", name);
  }
  state.quant_type = *type->as_string();
  FEWBIT_TRY(state.shape, matrix_of(json, name));
  FEWBIT_TRY(state.block, size_of(json, "blocksize", name));
  FEWBIT_TRY(read_nested(json, state, name));
  return state;
}

Result<std::vector<float>> bitsandbytes_block_scales(const Checkpoint& checkpoint,
                                                     const Module& module,
                                                     const BitsandbytesState& state) {
  const std::int64_t count = ceil_div(module.n * module.k, state.block);
  return state.nested ? nested_scales(checkpoint, module, state, count)
                      : read_floats(checkpoint, module, "weight.absmax", count);
}

Result<std::vector<float>> bitsandbytes_row_scales(const Checkpoint& checkpoint,
                                                   const Module& module) {
  FEWBIT_TRY(std::vector<float> scales, read_floats(checkpoint, module, "SCB", module.n));
  for (float& scale : scales) scale /= 127.0F;
  return scales;
}

}  // namespace fewbit
