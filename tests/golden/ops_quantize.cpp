// SPDX-License-Identifier: Apache-2.0
// SGLang's quantizers: quantize_weights, gptq_quantize_weights.
#include "core/convert.hpp"
#include "golden/ops.hpp"
#include "quantize/sglang_weights.hpp"

namespace fewbit::golden {
namespace {

struct Weights {
  std::vector<float> values;
  MatrixSize size;
  DType dtype;
};

Result<Weights> weights_of(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor w, c.input("w"));
  Weights out;
  out.size = {w.view.shape[0], w.view.shape[1]};
  out.dtype = w.view.dtype;
  out.values.resize(static_cast<std::size_t>(out.size.rows * out.size.columns));
  FEWBIT_TRY(convert_to_f32(out.dtype, w.view.bytes, out.values));
  return out;
}

Result<Tensor> floats(const std::vector<float>& values, DType dtype, const Shape& shape) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bits(dtype)) / 8);
  FEWBIT_TRY(convert_from_f32(values, dtype, bytes));
  return tensor_of(dtype, shape, bytes);
}

Result<Outputs> outputs_of(const Weights& w, const sglang::QuantizedWeights& made) {
  const Shape shape = {w.size.rows, w.size.columns};
  Outputs out;
  FEWBIT_TRY(out["w_ref"], floats(made.reference, made.reference_dtype, shape));
  out["w_q"] = tensor_of(DType::i32, shape, made.codes);
  if (made.scales.empty()) return out;
  const auto groups = static_cast<std::int64_t>(made.scales.size()) / w.size.columns;
  FEWBIT_TRY(out["w_s"], floats(made.scales, w.dtype, {groups, w.size.columns}));
  if (!made.zeros.empty()) {
    out["w_zp"] = tensor_of(DType::i32, {groups, w.size.columns}, made.zeros);
  }
  return out;
}

}  // namespace

Result<Outputs> quantize_weights(const GoldenCase& c) {
  FEWBIT_TRY(const Weights w, weights_of(c));
  sglang::QuantizeOptions options;
  FEWBIT_TRY(const std::string type, c.string_param("quant_type"));
  FEWBIT_TRY(options.type, sglang::integer_type(type));
  const Json* group_size = c.params->find("group_size");
  options.group_size = group_size == nullptr ? std::nullopt : group_size->as_int64();
  FEWBIT_TRY(options.zero_points, c.bool_param("zero_points"));
  FEWBIT_TRY(options.zeros_after_scales, c.bool_param("ref_zero_points_after_scales"));
  FEWBIT_TRY(const auto made, sglang::quantize_weights(w.values, w.size, w.dtype, options));
  return outputs_of(w, made);
}

Result<Outputs> gptq_quantize_weights(const GoldenCase& c) {
  FEWBIT_TRY(const Weights w, weights_of(c));
  FEWBIT_TRY(const std::string type, c.string_param("quant_type"));
  FEWBIT_TRY(const std::int64_t group_size, c.int_param("group_size"));
  std::vector<std::int64_t> order;
  if (c.has_input("perm")) {
    FEWBIT_TRY(order, c.values<std::int64_t>("perm"));
  }
  FEWBIT_TRY(const auto made,
             sglang::gptq_quantize_weights(w.values, w.size, w.dtype, type, group_size, order));
  FEWBIT_TRY(Outputs out, outputs_of(w, made.weights));
  if (!made.g_idx.empty()) {
    out["g_idx"] =
        tensor_of(DType::i32, {static_cast<std::int64_t>(made.g_idx.size())}, made.g_idx);
  }
  return out;
}

}  // namespace fewbit::golden
