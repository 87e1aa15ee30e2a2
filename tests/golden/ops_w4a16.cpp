// SPDX-License-Identifier: Apache-2.0
// Whole preparations of W4A16 weights.
#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/layouts.hpp"
#include "fewbit/selection.hpp"
#include "golden/ops.hpp"
#include "golden/w4a16_case.hpp"

namespace fewbit::golden {
namespace {

// What the preparation writes. With reuse the outputs start as copies of the inputs, which are then
// the same memory.
struct Buffers {
  std::vector<std::byte> tiles;
  std::vector<std::byte> scales;
  std::vector<float> global_scales;

  Buffers(const W4a16MatrixPlan& plan, std::int64_t experts)
      : tiles(static_cast<std::size_t>(plan.tiles_bytes)),
        scales(static_cast<std::size_t>(plan.scales_bytes)),
        global_scales(static_cast<std::size_t>(experts)) {}

  static void reuse(TensorView& input, std::vector<std::byte>& buffer) {
    if (input.bytes.size() != buffer.size()) return;
    std::copy(input.bytes.begin(), input.bytes.end(), buffer.begin());
    input.bytes = buffer;
  }
  W4a16MatrixOutput output() {
    return {.tiles = tiles, .scales = scales, .global_scales = global_scales};
  }
  void put(const W4a16MatrixPlan& plan, DType scale_dtype, const std::string& name,
           Outputs& outputs) const {
    const auto experts = static_cast<std::int64_t>(global_scales.size());
    outputs[name] = tensor_of(DType::i32, {experts, plan.dims.k / 16, plan.dims.n * 2}, tiles);
    outputs[name + "_scale"] =
        tensor_of(scale_dtype, {experts, plan.scale_grid.k, plan.scale_grid.n}, scales);
    outputs[name + "_global_scale"] = tensor_of(DType::f32, {experts}, global_scales);
  }
};

enum class Storage { apart, codes_reused, codes_and_scales_reused };

Result<Storage> storage_of(const GoldenCase& c) {
  FEWBIT_TRY(const bool reuse, c.bool_param("reuse_input_storage"));
  if (!reuse) return Storage::apart;
  const Json* aliases = c.params->find("output_aliases_input");
  const Json* scales = aliases == nullptr ? nullptr : aliases->find("w13_scale");
  const bool with_scales = scales != nullptr && scales->as_bool().value_or(false);
  return with_scales ? Storage::codes_and_scales_reused : Storage::codes_reused;
}

// The fields of the returned object, which the plan must agree with.
Result<void> check_result(const GoldenCase& c, const W4a16Input& input, const W4a16Plan& plan) {
  const Json* result = c.params->find("result");
  if (result == nullptr) return {};
  const auto expect = [&](const char* key, const Json& got) -> Result<void> {
    const Json* want = result->find(key);
    if (want == nullptr || want->dump() == got.dump()) return {};
    return Error{ErrorCode::inconsistent,
                 std::string("result ") + key + ": got " + got.dump() + ", want " + want->dump(),
                 c.name};
  };
  FEWBIT_TRY(expect("num_experts", Json(plan.experts)));
  FEWBIT_TRY(expect("hidden_size", Json(plan.w2.dims.n)));
  FEWBIT_TRY(expect("intermediate_size", Json(plan.w2.dims.k)));
  FEWBIT_TRY(expect("is_gated", Json(input.gating == Gating::gated)));
  return expect("w13_layout", Json(input.w13_order == W13Order::up_gate ? "w13" : "w31"));
}

Result<Outputs> prepare(const GoldenCase& c, W4a16Source source, BlockScaleStorage block_scales) {
  FEWBIT_TRY(W4a16Input input, read_w4a16_input(c, source, block_scales));
  FEWBIT_TRY(const W4a16Plan plan, plan_w4a16(input));
  FEWBIT_TRY(check_result(c, input, plan));
  Buffers w13(plan.w13, plan.experts);
  Buffers w2(plan.w2, plan.experts);
  FEWBIT_TRY(const Storage storage, storage_of(c));
  if (storage != Storage::apart) {
    Buffers::reuse(input.w13.codes, w13.tiles);
    Buffers::reuse(input.w2.codes, w2.tiles);
  }
  if (storage == Storage::codes_and_scales_reused) {
    Buffers::reuse(input.w13.block_scales, w13.scales);
    Buffers::reuse(input.w2.block_scales, w2.scales);
  }
  FEWBIT_TRY(const DeviceInfo device, detect_cpu());
  FEWBIT_TRY(prepare_w4a16(input, {.w13 = w13.output(), .w2 = w2.output()}, device.isa,
                           serial_executor()));
  const bool e8m0 = source == W4a16Source::fp4_e8m0_k32;
  Outputs outputs;
  w13.put(plan.w13, e8m0 ? DType::f8_e8m0 : DType::f8_e4m3, "w13", outputs);
  w2.put(plan.w2, e8m0 ? DType::f8_e8m0 : DType::f8_e4m3, "w2", outputs);
  return outputs;
}

// Both storages of the block scales must give the same.
Result<Outputs> prepare_nvfp4(const GoldenCase& c, W4a16Source source) {
  FEWBIT_TRY(Outputs outputs, prepare(c, source, BlockScaleStorage::swizzled_128x4));
  if (!c.has_input("w13_blockscale_plain")) return outputs;
  FEWBIT_TRY(const Outputs plain, prepare(c, source, BlockScaleStorage::plain));
  for (const auto& [role, tensor] : plain) {
    const auto& other = outputs[role].view.bytes;
    if (!std::equal(tensor.view.bytes.begin(), tensor.view.bytes.end(), other.begin(),
                    other.end())) {
      return Error{ErrorCode::inconsistent, role + " differs with plain block scales", c.name};
    }
  }
  return outputs;
}

}  // namespace

Result<Outputs> prepare_w4a16_modelopt_nvfp4_weights(const GoldenCase& c) {
  return prepare_nvfp4(c, W4a16Source::modelopt_nvfp4);
}

Result<Outputs> prepare_w4a16_compressed_tensors_weights(const GoldenCase& c) {
  return prepare_nvfp4(c, W4a16Source::compressed_tensors);
}

Result<Outputs> prepare_w4a16_fp4_e8m0_k32_weights(const GoldenCase& c) {
  return prepare(c, W4a16Source::fp4_e8m0_k32, BlockScaleStorage::plain);
}

Result<Outputs> prepare_w4a16_packed_weights(const GoldenCase& c) {
  FEWBIT_TRY(const std::string name, c.string_param("source_format"));
  FEWBIT_TRY(const W4a16Source source, w4a16_source_from_name(name));
  if (source == W4a16Source::fp4_e8m0_k32) return prepare_w4a16_fp4_e8m0_k32_weights(c);
  return prepare_nvfp4(c, source);
}

}  // namespace fewbit::golden
