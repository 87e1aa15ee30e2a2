// SPDX-License-Identifier: Apache-2.0
// Whole layers of GPTQ and AWQ words for Marlin.
#include <string>
#include <vector>

#include "fewbit/executor.hpp"
#include "golden/ops.hpp"
#include "layout/prepare_marlin.hpp"

namespace fewbit::golden {
namespace {

Error wrong(const GoldenCase& c, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), c.name};
}

std::optional<TensorView> optional_input(const GoldenCase& c, const std::string& role) {
  if (!c.has_input(role)) return std::nullopt;
  return c.input(role)->view;
}

Result<MarlinMatrix> matrix_of(const GoldenCase& c, const std::string& name) {
  FEWBIT_TRY(const Tensor words, c.input(name + "_qweight"));
  FEWBIT_TRY(const Tensor scales, c.input(name + "_scales"));
  return MarlinMatrix{.words = words.view,
                      .scales = scales.view,
                      .zeros = optional_input(c, name + "_qzeros"),
                      .bias = optional_input(c, name + "_bias"),
                      .g_idx = optional_input(c, name + "_g_idx")};
}

bool act_order(const GoldenCase& c) {
  const Json* order = c.params->find("actorder");
  return order != nullptr && order->as_string() != nullptr;
}

// All but the tensors.
Result<MarlinInput> sizes_of(const GoldenCase& c, WordSource source) {
  MarlinInput input;
  input.codes.source = source;
  FEWBIT_TRY(const std::int64_t bits, c.int_param("num_bits"));
  input.codes.bits = static_cast<int>(bits);
  if (const auto dtype = c.string_param("input_dtype")) {
    input.codes.activation = *dtype == "int8" ? MarlinActivation::int8 : MarlinActivation::f8_e4m3;
  }
  input.rules = MarlinRules::as_vllm;
  input.row_order = act_order(c) ? MarlinRowOrder::act_order : MarlinRowOrder::stored;
  FEWBIT_TRY(input.group_size, c.int_param("group_size"));
  FEWBIT_TRY(input.hidden_size, c.int_param("hidden_size"));
  FEWBIT_TRY(input.intermediate_size, c.int_param("intermediate_size"));
  return input;
}

void put(const std::string& name, const MarlinMatrixResult& result, Outputs& outputs) {
  outputs[name + "_qweight"] = result.words;
  outputs[name + "_scales"] = result.scales;
  outputs[name + "_qzeros"] = result.zeros;
  outputs[name + "_bias"] = result.bias;
  outputs[name + "_g_idx"] = result.g_idx;
  outputs[name + "_g_idx_sort_indices"] = result.order;
  if (result.activation_factor) {
    outputs[name + "_input_global_scale"] =
        tensor_of(DType::f32, {1}, std::vector<float>{*result.activation_factor});
  }
}

// Outputs that the set lists as absent or without elements.
Result<void> check_absent(const GoldenCase& c, const Outputs& outputs) {
  std::vector<std::string> absent;
  if (const Json* none = c.params->find("none_outputs"); none != nullptr) {
    for (const Json& name : *none->as_array()) absent.push_back(*name.as_string());
  }
  if (const Json* empty = c.params->find("empty_outputs"); empty != nullptr) {
    for (const Json& entry : *empty->as_array()) {
      absent.push_back(*entry.find("name")->as_string());
    }
  }
  for (const std::string& name : absent) {
    const auto found = outputs.find(name);
    if (found != outputs.end() && !found->second.empty()) return wrong(c, name + " is not absent");
  }
  return {};
}

Result<Outputs> layer(const GoldenCase& c, WordSource source) {
  FEWBIT_TRY(MarlinInput input, sizes_of(c, source));
  FEWBIT_TRY(input.w13, matrix_of(c, "w13"));
  FEWBIT_TRY(input.w2, matrix_of(c, "w2"));
  FEWBIT_TRY(const std::int64_t padded, c.int_param("padded_intermediate"));
  FEWBIT_TRY(const MarlinPlan plan, plan_marlin(input));
  if (plan.w2.dims.k != padded) {
    return wrong(
        c, "padded to " + std::to_string(plan.w2.dims.k) + ", want " + std::to_string(padded));
  }
  FEWBIT_TRY(const MarlinResult result, prepare_marlin(input, serial_executor()));
  Outputs outputs;
  put("w13", result.w13, outputs);
  put("w2", result.w2, outputs);
  FEWBIT_TRY(check_absent(c, outputs));
  return outputs;
}

}  // namespace

Result<Outputs> process_weights_marlin(const GoldenCase& c) { return layer(c, WordSource::gptq); }

Result<Outputs> process_awq_weights_marlin(const GoldenCase& c) {
  return layer(c, WordSource::awq);
}

Result<Outputs> process_weights_marlin_error(const GoldenCase& c) {
  FEWBIT_TRY(MarlinInput input, sizes_of(c, WordSource::gptq));
  // The set has no tensors here; there would be groups in another order.
  if (act_order(c)) input.w2.g_idx.emplace();
  const auto result = prepare_marlin(input, serial_executor());
  if (result) return wrong(c, "was not refused");
  // The set's words: "padding is unsupported with act-order".
  const std::string message = result.error().message();
  if (message.find("padding") == std::string::npos ||
      message.find("act-order") == std::string::npos) {
    return wrong(c, "refused for another reason: " + message);
  }
  return Outputs{};
}

}  // namespace fewbit::golden
