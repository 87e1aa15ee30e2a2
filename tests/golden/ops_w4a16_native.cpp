// SPDX-License-Identifier: Apache-2.0
// Preparations that leave the codes as they are, and NF3.
#include <string>

#include "fewbit/executor.hpp"
#include "fewbit/layouts.hpp"
#include "golden/ops.hpp"
#include "golden/w4a16_case.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/nf3_scale.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/scale_grid.hpp"
#include "moe/route_plan.hpp"

namespace fewbit::golden {
namespace {

Error wrong(const GoldenCase& c, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), c.name};
}

void put(const std::string& name, const W4a16NativeScales& scales, Outputs& outputs) {
  outputs[name + "_scale"] = scales.scales;
  outputs[name + "_global_scale"] = scales.global_scales;
  outputs["micro_" + name + "_scale"] = scales.micro_scales;
  outputs["micro_" + name + "_global_scale"] = scales.micro_global_scales;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.view.bytes, b.view.bytes);
}

// Outputs that the set lists as equal to others instead of storing them.
Result<void> check_same_as(const GoldenCase& c, const Outputs& outputs) {
  const Json* same_as = c.params->find("same_as");
  if (same_as == nullptr || same_as->as_object() == nullptr) return {};
  for (const auto& [role, other] : *same_as->as_object()) {
    const auto a = outputs.find(role);
    const auto b = outputs.find(*other.as_string());
    if (a == outputs.end() || b == outputs.end() || !same_bytes(a->second, b->second)) {
      return wrong(c, role + " differs from " + *other.as_string());
    }
  }
  return {};
}

Result<Outputs> prepare_native(const GoldenCase& c, W4a16Source source, BlockScaleStorage storage) {
  FEWBIT_TRY(const W4a16Input input, read_w4a16_input(c, source, storage));
  FEWBIT_TRY(const W4a16NativeResult result,
             prepare_w4a16_native(input, UnevenColumns::cut, serial_executor()));
  Outputs outputs;
  put("w13", result.w13, outputs);
  put("w2", result.w2, outputs);
  FEWBIT_TRY(check_same_as(c, outputs));
  return outputs;
}

Result<Nf3Matrix> nf3_matrix(const GoldenCase& c, const std::string& name, const char* tile_key) {
  Nf3Matrix matrix;
  FEWBIT_TRY(const Tensor codes, c.input(name + "_codes"));
  FEWBIT_TRY(const Tensor scales, c.input(name + "_scale"));
  FEWBIT_TRY(matrix.tile_n, c.int_param(tile_key));
  matrix.codes = codes.view;
  matrix.scales = scales.view;
  return matrix;
}

void put(const std::string& name, const Nf3MatrixResult& result, Outputs& outputs) {
  outputs[name] = result.words;
  outputs[name + "_scale"] = result.scales;
  outputs[name + "_global_scale"] = result.global_scales;
}

}  // namespace

Result<Outputs> prepare_w4a16_modelopt_native_weights(const GoldenCase& c) {
  FEWBIT_TRY(const Outputs plain,
             prepare_native(c, W4a16Source::modelopt_nvfp4, BlockScaleStorage::plain));
  FEWBIT_TRY(Outputs outputs,
             prepare_native(c, W4a16Source::modelopt_nvfp4, BlockScaleStorage::swizzled_128x4));
  for (const auto& [role, tensor] : plain) {
    if (!same_bytes(tensor, outputs[role])) {
      return wrong(c, role + " differs with plain block scales");
    }
  }
  return outputs;
}

Result<Outputs> prepare_w4a16_e8m0_native_weights(const GoldenCase& c) {
  return prepare_native(c, W4a16Source::fp4_e8m0_k32, BlockScaleStorage::plain);
}

Result<Outputs> prepare_nf3_moe_weights(const GoldenCase& c) {
  Nf3Input input;
  input.rounding = Nf3ScaleRounding::truncate;
  FEWBIT_TRY(input.hidden_size, c.int_param("hidden_size"));
  FEWBIT_TRY(input.intermediate_size, c.int_param("intermediate_size"));
  FEWBIT_TRY(const std::string activation, c.string_param("activation"));
  FEWBIT_TRY(input.gating, w4a16_gating(activation));
  FEWBIT_TRY(input.w13, nf3_matrix(c, "w13", "fc1_tile_n"));
  FEWBIT_TRY(input.w2, nf3_matrix(c, "w2", "fc2_tile_n"));
  FEWBIT_TRY(const Nf3Result result, prepare_nf3(input));
  Outputs outputs;
  put("w13", result.w13, outputs);
  put("w2", result.w2, outputs);
  return outputs;
}

Result<Outputs> b12x_nf3_pack_codes(const GoldenCase& c) {
  Dims dims;
  FEWBIT_TRY(dims.n, c.int_param("size_n"));
  FEWBIT_TRY(dims.k, c.int_param("size_k"));
  FEWBIT_TRY(const std::int64_t tile_n, c.int_param("tile_n"));
  FEWBIT_TRY(const std::vector<std::uint8_t> codes, c.values<std::uint8_t>("codes"));
  if (!Nf3Packed::accepts(dims, tile_n)) return wrong(c, "sizes are not accepted");
  std::vector<std::byte> words(static_cast<std::size_t>(Nf3Packed::bytes(dims)));
  pack_nf3(dims, tile_n, codes, words);
  return Outputs{{"words", tensor_of(DType::i32, {Nf3Packed::bytes(dims) / 4}, words)}};
}

Result<Outputs> b12x_process_nf3_packed_scales(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor scales, c.input("scales"));
  FEWBIT_TRY(const std::vector<float> values, c.values<float>("scales"));
  std::vector<std::uint8_t> bytes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bytes[static_cast<std::size_t>(swap12(static_cast<std::int64_t>(i)))] =
        nf3_truncated_byte(values[i]);
  }
  return Outputs{{"bytes", tensor_of(DType::u8, scales.view.shape, bytes)}};
}

Result<Outputs> route_plan_table(const GoldenCase& c) {
  const Json* rows = c.params->find("rows");
  if (rows == nullptr || rows->as_array() == nullptr) return wrong(c, "no rows");
  for (const Json& row : *rows->as_array()) {
    const auto number = [&](const char* key) {
      const Json* value = row.find(key);
      return value == nullptr ? -1 : value->as_int64().value_or(-1);
    };
    const RouteCount count{.routes = number("m") * number("topk"), .experts = number("experts")};
    const std::int64_t block = route_block_size(count);
    const std::int64_t slots = route_slots(count, block);
    const RouteCapacity capacity = route_capacity(count);
    const Json::Array& want = *row.find("max_w4a16_route_capacity")->as_array();
    const std::int64_t scratch = split_gemm_elements(
        {.columns = 512, .slots = slots, .block_size = block, .multiprocessors = 132});
    if (block != number("block_size_m") || slots != number("max_packed_route_slots") ||
        capacity.slots != want.at(0).as_int64() || capacity.blocks != want.at(1).as_int64() ||
        scratch != number("packed_gemm_scratch_elements(size_n=512,sms=132)")) {
      return wrong(c, "got block " + std::to_string(block) + ", slots " + std::to_string(slots) +
                          ", capacity " + std::to_string(capacity.slots) + " in " +
                          std::to_string(capacity.blocks) + " blocks, scratch " +
                          std::to_string(scratch) + "; want " + row.dump());
    }
  }
  return Outputs{};
}

}  // namespace fewbit::golden
