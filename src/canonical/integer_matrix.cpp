// SPDX-License-Identifier: Apache-2.0
#include "canonical/integer_matrix.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "canonical/code_row.hpp"
#include "canonical/grid.hpp"
#include "canonical/integer_words.hpp"
#include "canonical/storage.hpp"
#include "scheme/group_index.hpp"
#include "scheme/integer_layout.hpp"

namespace fewbit {
namespace {

Error wrong(const IntegerParts& parts, const char* suffix, std::string what) {
  return Error{ErrorCode::corrupt, std::move(what), parts.name + "." + suffix};
}

Result<void> check_part(const IntegerParts& parts, const char* suffix, const Tensor& tensor,
                        std::initializer_list<DType> dtypes, const Shape& shape) {
  const TensorView& view = tensor.view;
  for (const DType dtype : dtypes) {
    if (view.dtype == dtype && view.shape == shape) return {};
  }
  return wrong(parts, suffix,
               fmt::format("is {} {}, expected {} {}", dtype_name(view.dtype),
                           shape_text(view.shape), dtype_name(*dtypes.begin()), shape_text(shape)));
}

template <class T>
Tensor owned(DType dtype, Shape shape, std::vector<T> values) {
  auto memory = std::make_shared<std::vector<T>>(std::move(values));
  const auto bytes = std::as_bytes(std::span<const T>(*memory));
  return {{dtype, std::move(shape), bytes, {}}, std::move(memory)};
}

std::int64_t group_count(const IntegerFit& fit) { return groups_along(fit.k, fit.group_size); }

// [groups or more, n] to [n, groups].
Tensor columns_as_rows(const Tensor& tensor, std::int64_t groups, std::int64_t n) {
  const auto width = static_cast<std::size_t>(dtype_bits(tensor.view.dtype)) / 8;
  std::vector<std::byte> out(static_cast<std::size_t>(groups * n) * width);
  transpose_elements(tensor.view.bytes.first(out.size()), {groups, n}, width, out);
  return owned(tensor.view.dtype, {n, groups}, std::move(out));
}

// The first `groups` elements of every row.
Tensor first_columns(const Tensor& tensor, std::int64_t groups) {
  const auto width = static_cast<std::size_t>(dtype_bits(tensor.view.dtype)) / 8;
  const auto stored = static_cast<std::size_t>(tensor.view.shape[1]) * width;
  const auto wanted = static_cast<std::size_t>(groups) * width;
  std::vector<std::byte> out;
  out.reserve(static_cast<std::size_t>(tensor.view.shape[0]) * wanted);
  for (std::size_t at = 0; at < tensor.view.bytes.size(); at += stored) {
    const auto row = tensor.view.bytes.subspan(at, wanted);
    out.insert(out.end(), row.begin(), row.end());
  }
  return owned(tensor.view.dtype, {tensor.view.shape[0], groups}, std::move(out));
}

Tensor code_rows(const IntegerFit& fit, const IntegerParts& parts, DType dtype) {
  const std::uint64_t row_bytes = code_row_bytes(dtype, fit.k);
  if (fit.packing == Packing::words_gemv &&
      parts.qweight.view.bytes.size() == static_cast<std::size_t>(fit.n) * row_bytes) {
    Tensor out = parts.qweight;
    out.view.dtype = DType::u8;
    out.view.shape = {fit.n, static_cast<std::int64_t>(row_bytes)};
    return out;
  }
  const std::size_t bytes = static_cast<std::size_t>(fit.n) * row_bytes;
  auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> rows(memory.get(), bytes);
  const auto words = parts.qweight.view.bytes;
  switch (fit.packing) {
    case Packing::words_n:
      rows_from_words_n(words, fit.n, fit.k, rows);
      break;
    case Packing::shorts_gemv:
      rows_from_shorts_gemv(words, fit.n, fit.k, rows);
      break;
    default:
      rows_from_words_k(words, {parts.qweight.view.shape[0], fit.n}, row_bytes, rows);
  }
  return {{DType::u8, {fit.n, static_cast<std::int64_t>(row_bytes)}, rows, {}}, std::move(memory)};
}

std::vector<std::uint8_t> transposed(const std::vector<std::uint8_t>& from, MatrixSize size) {
  std::vector<std::uint8_t> to(from.size());
  transpose_elements(std::as_bytes(std::span(from)), size, 1,
                     std::as_writable_bytes(std::span(to)));
  return to;
}

Tensor zero_rows(const Scheme& scheme, const IntegerFit& fit, const IntegerParts& parts) {
  const std::int64_t groups = group_count(fit);
  const auto words = parts.qzeros.view.bytes;
  if (fit.packing == Packing::words_gemv) {
    const MatrixSize stored = {fit.n, parts.qzeros.view.shape[1] * 8};
    Tensor all = owned(DType::u8, {stored.rows, stored.columns}, unpack_fields(words, stored, 4));
    return first_columns(all, groups);
  }
  const MatrixSize size = {groups, fit.n};
  std::vector<std::uint8_t> zeros = fit.packing == Packing::words_n
                                        ? unpack_awq_nibbles(words, size)
                                        : unpack_fields(words, size, fit.bits);
  if (scheme.packing == Packing::words_k_minus) {
    const unsigned mask = (1U << static_cast<unsigned>(fit.bits)) - 1U;
    for (std::uint8_t& zero : zeros) zero = static_cast<std::uint8_t>((zero + 1U) & mask);
  }
  return owned(DType::u8, {fit.n, groups}, transposed(zeros, size));
}

Result<void> check_parts(const Scheme& scheme, const IntegerFit& fit, const IntegerShapes& shapes,
                         const IntegerParts& parts) {
  FEWBIT_TRY(check_part(parts, "qweight", parts.qweight, {shapes.qweight_dtype}, shapes.qweight));
  FEWBIT_TRY(check_part(parts, "scales", parts.scales, {DType::f16, DType::bf16, DType::f32},
                        shapes.scales));
  const bool fast = fit.packing == Packing::shorts_gemv;
  if ((scheme.zero_points || fast) && parts.qzeros.empty()) {
    return Error{ErrorCode::not_found, fmt::format("tensor {}.qzeros is missing", parts.name),
                 parts.name};
  }
  if (scheme.zero_points || fast) {
    FEWBIT_TRY(check_part(parts, "qzeros", parts.qzeros, {shapes.qzeros_dtype}, shapes.qzeros));
  }
  if (!parts.g_idx.empty()) {
    FEWBIT_TRY(check_part(parts, "g_idx", parts.g_idx, {DType::i32}, shapes.g_idx));
  }
  if (fast && (fit.n % 4 != 0 || fit.k % 64 != 0)) {
    return wrong(parts, "qweight", fmt::format("[{}, {}] is no multiple of [4, 64]", fit.n, fit.k));
  }
  return {};
}

// Groups in order are runs of columns, unless the layer is in act-order: one expert whose groups
// are in order by chance has the scheme of the others.
Result<void> set_group_index(const IntegerFit& fit, const IntegerParts& parts,
                             QuantizedTensor& out) {
  const bool ordered = out.scheme.act_order == ActOrder::group;
  out.scheme.act_order = ActOrder::none;
  if (parts.g_idx.empty()) return {};
  GroupIndex index = read_group_index(parts.g_idx.view, fit.group_size);
  if (index.bad_column >= 0) {
    return wrong(parts, "g_idx",
                 fmt::format("element {} is {}, expected a group from 0 to {}", index.bad_column,
                             index.bad_value, group_count(fit) - 1));
  }
  if (index.in_order && (!ordered || fit.group_size <= 0)) return {};
  out.scheme.act_order = ActOrder::group;
  out.g_idx = owned(DType::i32, {fit.k}, std::move(index.groups));
  return {};
}

Result<Tensor> optional_part(const Checkpoint& checkpoint, const Module& module,
                             std::string_view suffix) {
  if (module.part(suffix).empty()) return Tensor{};
  return part_tensor(checkpoint, module, suffix);
}

}  // namespace

Result<QuantizedTensor> make_integer_matrix(const Scheme& scheme, std::int64_t n, std::int64_t k,
                                            const IntegerParts& parts) {
  const IntegerFit fit = integer_fit_of(scheme, n, k);
  const auto shapes = integer_shapes(fit);
  if (!shapes) {
    return Error{ErrorCode::corrupt, fmt::format("matrix [{}, {}], expected 1 to 2^40", n, k),
                 parts.name};
  }
  FEWBIT_TRY(check_parts(scheme, fit, *shapes, parts));
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme = scheme;
  FEWBIT_TRY(set_group_index(fit, parts, out));
  out.codes = code_rows(fit, parts, scheme.weight);
  const std::int64_t groups = group_count(fit);
  const bool gemv = fit.packing == Packing::words_gemv;
  out.scales =
      gemv ? first_columns(parts.scales, groups) : columns_as_rows(parts.scales, groups, n);
  out.scheme.scale->dtype = parts.scales.view.dtype;
  if (scheme.zero_points) out.zero_points = zero_rows(scheme, fit, parts);
  if (fit.packing == Packing::shorts_gemv) out.offsets = columns_as_rows(parts.qzeros, groups, n);
  if (const auto checked = check_quantized(out); !checked) {
    return Error{checked.error().code, checked.error().what, parts.name};
  }
  return out;
}

Result<QuantizedTensor> canonicalize_integer(const Checkpoint& checkpoint, const Module& module,
                                             std::int64_t /*fused_expert*/) {
  IntegerParts parts;
  parts.name = module.name;
  FEWBIT_TRY(parts.qweight, part_tensor(checkpoint, module, "qweight"));
  FEWBIT_TRY(parts.scales, part_tensor(checkpoint, module, "scales"));
  FEWBIT_TRY(parts.qzeros, optional_part(checkpoint, module, "qzeros"));
  FEWBIT_TRY(parts.g_idx, optional_part(checkpoint, module, "g_idx"));
  return make_integer_matrix(module.scheme, module.n, module.k, parts);
}

}  // namespace fewbit
