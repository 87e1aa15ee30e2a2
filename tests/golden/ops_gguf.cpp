// SPDX-License-Identifier: Apache-2.0
// GGUF blocks: dequant_gguf, dequant_q2_0, quantize_gguf.
#include "canonical/gguf_blocks.hpp"
#include "golden/ops.hpp"
#include "quantize/gguf_encode.hpp"

namespace fewbit::golden {
namespace {

Result<const GgufType*> type_of(const GoldenCase& c) {
  FEWBIT_TRY(const std::string name, c.string_param("type"));
  FEWBIT_TRY(const std::int64_t elements, c.int_param("block_elements"));
  const GgufType* first = find_gguf_type(name);
  const GgufType* type = first == nullptr ? nullptr : find_gguf_type(first->id, elements);
  if (type == nullptr) {
    return Error{ErrorCode::not_found, "type '" + name + "' is unknown with this extent", c.name};
  }
  return type;
}

// data [rows, bytes] to f32 [rows, elements].
Result<Tensor> decode(const GgufType& type, const TensorView& data) {
  const std::int64_t row = data.shape.back() / type.bytes * type.elements;
  std::vector<float> values(static_cast<std::size_t>(data.shape.front() * row));
  FEWBIT_TRY(decode_gguf_blocks(type, data.bytes, values));
  return tensor_of(DType::f32, {data.shape.front(), row}, values);
}

}  // namespace

Result<Outputs> dequant_gguf(const GoldenCase& c) {
  FEWBIT_TRY(const GgufType* type, type_of(c));
  FEWBIT_TRY(const Tensor data, c.input("data"));
  FEWBIT_TRY(Tensor values, decode(*type, data.view));
  return Outputs{{"f32", std::move(values)}};
}

Result<Outputs> dequant_q2_0(const GoldenCase& c) {
  FEWBIT_TRY(const std::int64_t group, c.int_param("group"));
  const GgufType* type = find_gguf_type(42, group);
  if (type == nullptr) return Error{ErrorCode::not_found, "no Q2_0 of that extent", c.name};
  FEWBIT_TRY(const Tensor data, c.input("data"));
  FEWBIT_TRY(Tensor values, decode(*type, data.view));
  return Outputs{{"f32", std::move(values)}};
}

Result<Outputs> quantize_gguf(const GoldenCase& c) {
  FEWBIT_TRY(const GgufType* type, type_of(c));
  FEWBIT_TRY(const Tensor x, c.input("x"));
  FEWBIT_TRY(const std::vector<float> values, c.values<float>("x"));
  const std::int64_t row_bytes = x.view.shape.back() / type->elements * type->bytes;
  std::vector<std::byte> bytes(static_cast<std::size_t>(x.view.shape.front() * row_bytes));
  FEWBIT_TRY(encode_gguf_blocks(*type, values, bytes));
  Tensor data = tensor_of(DType::u8, {x.view.shape.front(), row_bytes}, bytes);
  FEWBIT_TRY(Tensor decoded, decode(*type, data.view));
  return Outputs{{"data", std::move(data)}, {"f32", std::move(decoded)}};
}

}  // namespace fewbit::golden
