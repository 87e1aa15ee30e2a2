// SPDX-License-Identifier: Apache-2.0
// FP8 matrices: dequantization, and the scales of fused ones.
#include "canonical/fused_scales.hpp"
#include "core/convert.hpp"
#include "fewbit/quantized.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

Result<std::vector<std::int64_t>> integers_param(const GoldenCase& c, std::string_view key) {
  const Json* value = c.params->find(key);
  const Json::Array* list = value != nullptr ? value->as_array() : nullptr;
  std::vector<std::int64_t> out;
  if (list != nullptr) {
    for (const Json& item : *list) {
      const auto number = item.as_int64();
      if (!number) break;
      out.push_back(*number);
    }
  }
  if (list != nullptr && out.size() == list->size()) return out;
  return Error{ErrorCode::invalid_argument, std::string(key) + " is no list of integers", c.name};
}

// A whole axis is -1 in the manifest.
Result<QuantizedTensor> fp8_matrix(const GoldenCase& c, std::int64_t rows, std::int64_t cols) {
  QuantizedTensor tensor;
  FEWBIT_TRY(tensor.codes, c.input("weight"));
  FEWBIT_TRY(tensor.scales, c.input("scale"));
  if (tensor.codes.view.shape.size() != 2) {
    return Error{ErrorCode::invalid_argument, "weight is no matrix", c.name};
  }
  tensor.n = tensor.codes.view.shape[0];
  tensor.k = tensor.codes.view.shape[1];
  tensor.scheme.producer = Producer::fp8;
  tensor.scheme.weight = DType::f8_e4m3;
  tensor.scheme.scale =
      ScaleSpec{tensor.scales.view.dtype,
                Granularity{std::max<std::int64_t>(rows, 0), std::max<std::int64_t>(cols, 0)},
                false, ScaleDirection::multiply};
  FEWBIT_TRY(check_quantized(tensor));
  return tensor;
}

Result<Tensor> rounded(const std::vector<float>& values, DType dtype, const Shape& shape) {
  FEWBIT_TRY(const std::uint64_t size, tensor_bytes(dtype, shape));
  std::vector<std::byte> bytes(size);
  FEWBIT_TRY(convert_from_f32(values, dtype, bytes));
  return tensor_of(dtype, shape, bytes);
}

Result<Outputs> decoded(const GoldenCase& c, const QuantizedTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.n * tensor.k));
  FEWBIT_TRY(dequantize_rows(tensor, 0, values));
  Outputs outputs;
  for (const auto& [role, dtype] : {std::pair{"f32", DType::f32}, {"bf16", DType::bf16}}) {
    if (!c.wants(role)) continue;
    FEWBIT_TRY(outputs[role], rounded(values, dtype, {tensor.n, tensor.k}));
  }
  return outputs;
}

}  // namespace

Result<Outputs> dequant_fp8_block(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::int64_t> block, integers_param(c, "block"));
  FEWBIT_TRY(const QuantizedTensor tensor, fp8_matrix(c, block.at(0), block.at(1)));
  return decoded(c, tensor);
}

Result<Outputs> dequant_fp8_scaled(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::int64_t> group, integers_param(c, "group_shape"));
  FEWBIT_TRY(const QuantizedTensor tensor, fp8_matrix(c, group.at(0), group.at(1)));
  return decoded(c, tensor);
}

Result<Outputs> per_tensor_dequantize(const GoldenCase& c) {
  FEWBIT_TRY(const std::string result, c.string_param("result_dtype"));
  FEWBIT_TRY(const QuantizedTensor tensor, fp8_matrix(c, 0, 0));
  std::vector<float> values(static_cast<std::size_t>(tensor.n * tensor.k));
  FEWBIT_TRY(dequantize_rows(tensor, 0, values));
  Outputs outputs;
  FEWBIT_TRY(outputs["y"],
             rounded(values, result == "float16" ? DType::f16 : DType::f32, {tensor.n, tensor.k}));
  return outputs;
}

Result<Outputs> convert_to_channelwise(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::int64_t> widths, integers_param(c, "logical_widths"));
  FEWBIT_TRY(const std::vector<float> scales, c.values<float>("weight_scale"));
  FEWBIT_TRY(const std::vector<float> spread, spread_shard_scales(scales, widths));
  Outputs outputs;
  outputs["channel"] = tensor_of(DType::f32, {static_cast<std::int64_t>(spread.size()), 1}, spread);
  return outputs;
}

Result<Outputs> requantize_with_max_scale(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::int64_t> widths, integers_param(c, "logical_widths"));
  FEWBIT_TRY(const std::vector<float> scales, c.values<float>("weight_scale"));
  FEWBIT_TRY(const Tensor weight, c.input("weight"));
  FEWBIT_TRY(std::vector<std::uint8_t> codes, c.values<std::uint8_t>("weight"));
  FEWBIT_TRY(const float largest,
             merge_shard_scales(scales, widths, weight.view.shape.back(), codes));
  Outputs outputs;
  const Expected* scale = c.wants("max_scale") ? &c.outputs.at("max_scale") : nullptr;
  if (scale != nullptr) {
    outputs["max_scale"] =
        tensor_of(DType::f32, scale->tensor.view.shape, std::vector<float>{largest});
  }
  for (const char* role : {"weight_f32scale", "weight"}) {
    if (c.wants(role)) outputs[role] = tensor_of(DType::f8_e4m3, weight.view.shape, codes);
  }
  return outputs;
}

}  // namespace fewbit::golden
