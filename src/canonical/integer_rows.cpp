// SPDX-License-Identifier: Apache-2.0
// Integer codes along k: in 32-bit words (pack-quantized) or in bytes, with scales, zero points and
// group numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "canonical/code_row.hpp"
#include "canonical/grid.hpp"
#include "canonical/parts.hpp"
#include "canonical/storage.hpp"
#include "core/checked.hpp"
#include "scheme/whole_words.hpp"
#include "scheme/word_forms.hpp"

namespace fewbit {
namespace {

// "weight_scale", or "scale" of fused experts.
std::string_view part_suffix(const Module& module, std::string_view suffix) {
  constexpr std::size_t prefix = std::string_view("weight_").size();
  const std::string_view other = suffix.substr(prefix);
  return module.part(suffix).empty() && !module.part(other).empty() ? other : suffix;
}

// A part of one matrix, or of one expert of a fused module.
Result<Tensor> read_part(const Checkpoint& checkpoint, const Module& module,
                         std::string_view suffix, std::int64_t fused_expert) {
  FEWBIT_TRY(Tensor tensor, part_tensor(checkpoint, module, suffix));
  const Shape& shape = tensor.view.shape;
  const bool sliced = fused_expert >= 0 && !shape.empty() && shape[0] == module.experts;
  return sliced ? first_dim_slice(tensor, fused_expert) : tensor;
}

Error shape_error(const Tensor& tensor, const Shape& expected, const Module& module,
                  std::string_view suffix) {
  return Error{ErrorCode::corrupt,
               fmt::format("shape is {}, expected {} for a matrix [{}, {}]",
                           shape_text(tensor.view.shape), shape_text(expected), module.n, module.k),
               std::string(module.part(suffix))};
}

// Rows of words cut to whole bytes; the memory of the file where nothing is cut.
Result<Tensor> cut_rows(const Tensor& words, std::int64_t n, std::uint64_t row_bytes) {
  const Shape shape = {n, static_cast<std::int64_t>(row_bytes)};
  const std::uint64_t stored = words.view.bytes.size() / static_cast<std::uint64_t>(n);
  if (stored == row_bytes) {
    Tensor same = words;
    same.view.dtype = DType::u8;
    same.view.shape = shape;
    return same;
  }
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, shape));
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i) {
    std::memcpy(out.bytes.data() + i * row_bytes, words.view.bytes.data() + i * stored, row_bytes);
  }
  return std::move(out.tensor);
}

// The codes of words that hold whole ones, as a stream of bits in whole bytes a row.
Result<Tensor> stream_of_whole(const Tensor& words, const Module& module, std::uint64_t row_bytes) {
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(DType::u8, {module.n, static_cast<std::int64_t>(row_bytes)}));
  const int bits = dtype_bits(module.scheme.weight);
  const auto row_words = static_cast<std::uint64_t>(words.view.shape.back());
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(module.n); ++i) {
    const std::byte* from = words.view.bytes.data() + i * row_words * 4;
    std::byte* to = out.bytes.data() + i * row_bytes;
    std::fill_n(to, row_bytes, std::byte{0});
    for (std::int64_t j = 0; j < module.k; ++j) {
      const std::int64_t bit = bit_of_code(j, bits, true);
      std::uint32_t word = 0;
      std::memcpy(&word, from + bit / 32 * 4, sizeof word);
      const std::uint32_t code = (word >> (bit % 32)) & ((1U << bits) - 1U);
      const std::int64_t at = j * bits;
      const std::uint32_t placed = code << (at % 8);
      to[at / 8] |= static_cast<std::byte>(placed);
      if (placed > 0xFF) to[at / 8 + 1] |= static_cast<std::byte>(placed >> 8);
    }
  }
  return std::move(out.tensor);
}

Result<Tensor> read_codes(const Checkpoint& checkpoint, const Module& module,
                          std::int64_t fused_expert) {
  const bool bytes = module.scheme.packing == Packing::none;
  const std::string_view suffix = bytes ? "weight" : part_suffix(module, "weight_packed");
  FEWBIT_TRY(Tensor codes, read_part(checkpoint, module, suffix, fused_expert));
  if (bytes) {
    FEWBIT_TRY(check_part_dtype(codes, DType::i8, module.part(suffix)));
    const Shape expected = {module.n, module.k};
    if (codes.view.shape != expected) return shape_error(codes, expected, module, suffix);
    return codes;
  }
  if (codes.view.dtype == DType::u32) codes.view.dtype = DType::i32;
  FEWBIT_TRY(check_part_dtype(codes, DType::i32, module.part(suffix)));
  const std::uint64_t row_bytes = code_row_bytes(module.scheme.weight, module.k);
  const bool whole = holds_whole_codes(checkpoint, module);
  const int bits = dtype_bits(module.scheme.weight);
  const Shape expected = {module.n, words_of_codes(module.k, bits, whole)};
  if (codes.view.shape != expected) return shape_error(codes, expected, module, suffix);
  if (whole) return stream_of_whole(codes, module, row_bytes);
  return cut_rows(codes, module.n, row_bytes);
}

Result<Tensor> read_scales(const Checkpoint& checkpoint, const Module& module,
                           std::int64_t fused_expert, const Shape& grid) {
  const std::string_view suffix = part_suffix(module, "weight_scale");
  FEWBIT_TRY(Tensor scales, read_part(checkpoint, module, suffix, fused_expert));
  FEWBIT_TRY(check_part_dtype(scales, module.scheme.scale->dtype, module.part(suffix)));
  FEWBIT_TRY(const std::int64_t elements, shape_elements(scales.view.shape));
  if (elements != grid[0] * grid[1]) return shape_error(scales, grid, module, suffix);
  scales.view.shape = grid;
  return scales;
}

// Words along the rows, each in a row of its own: the value of column `column` that begins at bit
// `bit` of the column's words.
std::uint8_t packed_zero(std::span<const std::byte> bytes, std::int64_t columns, std::int64_t bit,
                         std::int64_t column, int bits) {
  std::uint64_t value = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t word_row = bit / 32 + i;
    if (i == 1 && bit % 32 + bits <= 32) break;
    std::uint32_t word = 0;
    std::memcpy(&word, bytes.data() + (word_row * columns + column) * 4, sizeof word);
    value |= static_cast<std::uint64_t>(word) << (32 * i);
  }
  return static_cast<std::uint8_t>((value >> (bit % 32)) & ((1U << bits) - 1U));
}

// Zero points as unsigned codes [rows, columns], as the codes are; bytes for I8 codes as stored.
Result<Tensor> read_zero_points(const Checkpoint& checkpoint, const Module& module,
                                std::int64_t fused_expert, const Shape& grid) {
  const std::string_view suffix = part_suffix(module, "weight_zero_point");
  FEWBIT_TRY(Tensor zeros, read_part(checkpoint, module, suffix, fused_expert));
  const int bits = dtype_bits(module.scheme.weight);
  const bool packed = zeros.view.dtype == DType::i32 && module.scheme.packing != Packing::none;
  if (!packed) {
    FEWBIT_TRY(check_part_dtype(zeros, DType::i8, module.part(suffix)));
  }
  const bool whole = holds_whole_codes(checkpoint, module);
  const Shape expected = packed ? Shape{words_of_codes(grid[0], bits, whole), grid[1]} : grid;
  FEWBIT_TRY(const std::int64_t elements, shape_elements(zeros.view.shape));
  if (elements != expected[0] * expected[1]) return shape_error(zeros, expected, module, suffix);
  zeros.view.shape = expected;
  if (module.scheme.packing == Packing::none) return zeros;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, grid));
  const std::int32_t offset = module.scheme.zero_point;
  for (std::int64_t i = 0; i < grid[0] * grid[1]; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (packed) {
      out.bytes[at] = static_cast<std::byte>(packed_zero(
          zeros.view.bytes, grid[1], bit_of_code(i / grid[1], bits, whole), i % grid[1], bits));
      continue;
    }
    const std::int32_t zero = std::int32_t{static_cast<std::int8_t>(zeros.view.bytes[at])};
    if (zero < -offset || zero >= offset) {
      return Error{ErrorCode::corrupt,
                   fmt::format("zero point [{}, {}] is {}, expected {} to {}", i / grid[1],
                               i % grid[1], zero, -offset, offset - 1),
                   std::string(module.part(suffix))};
    }
    out.bytes[at] = static_cast<std::byte>(zero + offset);
  }
  return std::move(out.tensor);
}

// Fills g_idx; -1 everywhere means that groups are runs of columns.
Result<void> read_group_index(const Checkpoint& checkpoint, const Module& module,
                              std::int64_t fused_expert, QuantizedTensor& made) {
  const std::string_view suffix = part_suffix(module, "weight_g_idx");
  FEWBIT_TRY(made.g_idx, read_part(checkpoint, module, suffix, fused_expert));
  FEWBIT_TRY(check_part_dtype(made.g_idx, DType::i32, module.part(suffix)));
  const Shape expected = {module.k};
  if (made.g_idx.view.shape != expected) return shape_error(made.g_idx, expected, module, suffix);
  const auto bytes = made.g_idx.view.bytes;
  const bool unset = std::all_of(bytes.begin(), bytes.end(),
                                 [](std::byte byte) { return byte == std::byte{0xFF}; });
  if (!unset) return {};
  made.g_idx = {};
  made.scheme.act_order = ActOrder::none;
  return {};
}

}  // namespace

Result<QuantizedTensor> canonicalize_integer_rows(const Checkpoint& checkpoint,
                                                  const Module& module, std::int64_t fused_expert) {
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  const Shape grid = {grid_rows(made), grid_columns(made)};
  FEWBIT_TRY(made.codes, read_codes(checkpoint, module, fused_expert));
  FEWBIT_TRY(made.scales, read_scales(checkpoint, module, fused_expert, grid));
  if (module.scheme.zero_points) {
    FEWBIT_TRY(made.zero_points, read_zero_points(checkpoint, module, fused_expert, grid));
  }
  if (module.scheme.act_order == ActOrder::group) {
    FEWBIT_TRY(read_group_index(checkpoint, module, fused_expert, made));
  }
  if (const auto checked = check_quantized(made); !checked) {
    return Error{checked.error().code, checked.error().what, module.name};
  }
  if (grid_columns(made) == 1) {  // one group has no order
    made.g_idx = {};
    made.scheme.act_order = ActOrder::none;
  }
  return made;
}

}  // namespace fewbit
