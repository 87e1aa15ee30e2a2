// SPDX-License-Identifier: Apache-2.0
// Integer codes in words: dequant_gptq, dequant_awq, awq_to_plain_pack and the packing helpers.
#include "canonical/code_row.hpp"
#include "canonical/integer_matrix.hpp"
#include "canonical/word_pack.hpp"
#include "core/convert.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

Result<MatrixSize> sizes(const GoldenCase& c) {
  MatrixSize size;
  FEWBIT_TRY(size.rows, c.int_param("size_k"));
  FEWBIT_TRY(size.columns, c.int_param("size_n"));
  return size;
}

DType code_type(std::int64_t bits) {
  return bits == 2 ? DType::u2 : bits == 3 ? DType::u3 : bits == 8 ? DType::u8 : DType::u4;
}

Result<QuantizedTensor> canonical(const GoldenCase& c, Producer producer, Packing packing) {
  FEWBIT_TRY(const MatrixSize size, sizes(c));
  FEWBIT_TRY(const std::int64_t bits, c.int_param("bits"));
  FEWBIT_TRY(const std::int64_t group_size, c.int_param("group_size"));
  IntegerParts parts;
  parts.name = c.name;
  FEWBIT_TRY(parts.qweight, c.input("qweight"));
  FEWBIT_TRY(parts.qzeros, c.input("qzeros"));
  FEWBIT_TRY(parts.scales, c.input("scales"));
  if (c.has_input("g_idx")) {
    FEWBIT_TRY(parts.g_idx, c.input("g_idx"));
  }
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = code_type(bits);
  scheme.packing = packing;
  scheme.zero_points = true;
  scheme.scale = ScaleSpec{parts.scales.view.dtype,
                           {1, group_size < 0 ? 0 : group_size},
                           false,
                           ScaleDirection::multiply};
  return make_integer_matrix(scheme, size.columns, size.rows, parts);
}

// [n, k] to [k, n].
template <class T>
std::vector<T> turned(const std::vector<T>& rows, std::int64_t n, std::int64_t k) {
  std::vector<T> out(rows.size());
  transpose_elements(std::as_bytes(std::span(rows)), {n, k}, sizeof(T),
                     std::as_writable_bytes(std::span(out)));
  return out;
}

std::vector<std::int32_t> codes_of(const QuantizedTensor& tensor) {
  std::vector<float> row(static_cast<std::size_t>(tensor.k));
  std::vector<std::int32_t> out;
  const std::size_t bytes = code_row_bytes(tensor.scheme.weight, tensor.k);
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.n); ++i) {
    decode_codes(tensor.scheme.weight, tensor.codes.view.bytes.subspan(i * bytes, bytes), row);
    for (const float code : row) out.push_back(static_cast<std::int32_t>(code));
  }
  return turned(out, tensor.n, tensor.k);
}

std::vector<std::int32_t> zeros_of(const QuantizedTensor& tensor) {
  std::vector<std::int32_t> out;
  for (const std::byte zero : tensor.zero_points.view.bytes) {
    out.push_back(std::to_integer<std::int32_t>(zero));
  }
  return turned(out, tensor.n, tensor.zero_points.view.shape[1]);
}

Result<Outputs> outputs_of(const GoldenCase& c, const QuantizedTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.n * tensor.k));
  FEWBIT_TRY(dequantize_rows(tensor, 0, values));
  const std::vector<float> turned_values = turned(values, tensor.n, tensor.k);
  const Shape shape = {tensor.k, tensor.n};
  Outputs out;
  out["codes"] = tensor_of(DType::i32, shape, codes_of(tensor));
  out["zeros"] =
      tensor_of(DType::i32, {tensor.zero_points.view.shape[1], tensor.n}, zeros_of(tensor));
  for (const auto& [role, expected] : c.outputs) {
    if (!role.starts_with("weight_kn")) continue;
    const DType dtype = expected.tensor.view.dtype;
    std::vector<std::byte> bytes(turned_values.size() *
                                 static_cast<std::size_t>(dtype_bits(dtype)) / 8);
    FEWBIT_TRY(convert_from_f32(turned_values, dtype, bytes));
    out[role] = tensor_of(dtype, shape, bytes);
  }
  return out;
}

std::vector<std::int32_t> as_signed(const std::vector<std::uint32_t>& words) {
  return {words.begin(), words.end()};
}

}  // namespace

Result<Outputs> dequant_gptq(const GoldenCase& c) {
  FEWBIT_TRY(const std::int64_t offset, c.int_param("zero_offset"));
  const Packing packing = offset == 1 ? Packing::words_k_minus : Packing::words_k;
  FEWBIT_TRY(const QuantizedTensor tensor, canonical(c, Producer::gptq, packing));
  return outputs_of(c, tensor);
}

Result<Outputs> dequant_awq(const GoldenCase& c) {
  FEWBIT_TRY(const QuantizedTensor tensor, canonical(c, Producer::awq, Packing::words_n));
  return outputs_of(c, tensor);
}

Result<Outputs> awq_to_plain_pack(const GoldenCase& c) {
  FEWBIT_TRY(const MatrixSize size, sizes(c));
  FEWBIT_TRY(const std::vector<std::uint32_t> qweight, c.values<std::uint32_t>("qweight"));
  FEWBIT_TRY(const std::vector<std::uint32_t> qzeros, c.values<std::uint32_t>("qzeros"));
  FEWBIT_TRY(const Tensor zeros, c.input("qzeros"));
  const MatrixSize groups = {zeros.view.shape[0], size.columns};
  FEWBIT_TRY(const PlainPack plain, fewbit::awq_to_plain_pack(qweight, size, qzeros, groups));
  return Outputs{
      {"qweight", tensor_of(DType::i32, {size.rows / 8, size.columns}, as_signed(plain.qweight))},
      {"qzeros", tensor_of(DType::i32, zeros.view.shape, as_signed(plain.qzeros))}};
}

Result<Outputs> pack_rows(const GoldenCase& c) {
  FEWBIT_TRY(const MatrixSize size, sizes(c));
  FEWBIT_TRY(const std::int64_t bits, c.int_param("num_bits"));
  FEWBIT_TRY(const std::vector<std::int32_t> codes, c.values<std::int32_t>("q_w"));
  FEWBIT_TRY(const auto words,
             fewbit::pack_rows(codes, size, static_cast<int>(bits), WideCodes::spill));
  return Outputs{
      {"packed", tensor_of(DType::i32, {size.rows * bits / 32, size.columns}, as_signed(words))}};
}

Result<Outputs> pack_cols(const GoldenCase& c) {
  FEWBIT_TRY(const MatrixSize size, sizes(c));
  FEWBIT_TRY(const std::int64_t bits, c.int_param("num_bits"));
  FEWBIT_TRY(const std::vector<std::int32_t> codes, c.values<std::int32_t>("q_w"));
  FEWBIT_TRY(const auto words,
             fewbit::pack_cols(codes, size, static_cast<int>(bits), WideCodes::spill));
  return Outputs{
      {"packed", tensor_of(DType::i32, {size.rows, size.columns * bits / 32}, as_signed(words))}};
}

Result<Outputs> unpack_cols(const GoldenCase& c) {
  FEWBIT_TRY(const MatrixSize size, sizes(c));
  FEWBIT_TRY(const std::int64_t bits, c.int_param("num_bits"));
  FEWBIT_TRY(const std::vector<std::uint32_t> words, c.values<std::uint32_t>("packed"));
  FEWBIT_TRY(const auto codes, fewbit::unpack_cols(words, size, static_cast<int>(bits)));
  return Outputs{{"q_w", tensor_of(DType::i32, {size.rows, size.columns}, codes)}};
}

Result<Outputs> sort_weights(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor shape, c.input("q_w"));
  FEWBIT_TRY(const std::vector<std::int32_t> codes, c.values<std::int32_t>("q_w"));
  FEWBIT_TRY(const std::vector<std::int32_t> g_idx, c.values<std::int32_t>("g_idx"));
  const MatrixSize size = {shape.view.shape[0], shape.view.shape[1]};
  FEWBIT_TRY(const SortedRows sorted, sort_rows_by_group(codes, size, g_idx));
  return Outputs{{"q_w", tensor_of(DType::i32, shape.view.shape, sorted.codes)},
                 {"g_idx", tensor_of(DType::i32, {size.rows}, sorted.g_idx)},
                 {"sort_indices", tensor_of(DType::i32, {size.rows}, sorted.order)}};
}

}  // namespace fewbit::golden
