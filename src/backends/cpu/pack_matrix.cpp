// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/pack_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "canonical/column_order.hpp"
#include "canonical/gguf_matrix.hpp"
#include "canonical/grid.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"
#include "layout/cpu_k_blocks.hpp"
#include "layout/cpu_lane16_pack.hpp"
#include "layout/pack.hpp"

namespace fewbit::cpu {
namespace {

constexpr std::int64_t block_rows = CpuF4Lane16::block_rows;
constexpr std::int64_t alignment = 64;

std::size_t size_of(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

const std::uint8_t* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}
std::uint8_t* bytes_of(std::span<std::byte> bytes) {
  return reinterpret_cast<std::uint8_t*>(bytes.data());
}

Dims grid_of(const WeightForm& form, Dims dims) { return {.n = dims.n, .k = form.groups(dims.k)}; }

// Sizes without the padding to 64.
PackedSizes used_sizes(const WeightForm& form, Dims dims) {
  const Dims grid = grid_of(form, dims);
  const std::int64_t blocks = ceil_div(dims.n, block_rows);
  return {.codes = blocks * (dims.k / 16) * lane16_cell_bytes(form.codes),
          .scales = form.scale == Lane16Scale::f32_blocks
                        ? blocks * grid.k * 4
                        : blocks * block_rows * grid.k * lane16_scale_bytes(form.scale),
          .zeros = form.zeros ? CpuLane16Groups<8>::bytes(grid) : 0};
}

// Codes of rows past the matrix: zero weights where their block has one scale for all rows.
std::uint8_t padding_of(const WeightForm& form) {
  if (form.scale != Lane16Scale::f32_blocks) return 0;
  if (form.codes == Lane16Codes::ternary) return 0x55;
  if (!form.offset_codes) return 0;
  return form.code_bits() == 4 ? 0x88 : 0x80;
}

Error unlike(const char* part, std::string has, std::string expected) {
  return Error{ErrorCode::invalid_argument, fmt::format("{} {}, expected {}", part, has, expected),
               ""};
}

// The canonical parts have the types and sizes that the form was made for.
Result<void> check_parts(const WeightForm& form, const QuantizedTensor& tensor) {
  if (!tensor.offsets.empty()) return unlike("offsets", "beside the codes", "none");
  const std::int64_t elements = groups_along(tensor.n, form.scale_rows) * form.groups(tensor.k);
  const auto check = [&](const char* part, const Tensor& grid, DType dtype) -> Result<void> {
    if (grid.view.dtype != dtype) {
      return unlike(part, fmt::format("in {}", dtype_name(grid.view.dtype)),
                    std::string(dtype_name(dtype)));
    }
    const std::size_t want = size_of(elements * (dtype_bits(dtype) / 8));
    if (grid.view.bytes.size() == want) return {};
    return unlike(part, fmt::format("of {} bytes", grid.view.bytes.size()), std::to_string(want));
  };
  FEWBIT_TRY(check("scales", tensor.scales, form.scale_dtype));
  if (form.zeros) {
    FEWBIT_TRY(check("zero_points", tensor.zero_points, form.offset_codes ? DType::u8 : DType::i8));
  }
  const std::size_t codes = size_of(tensor.n * (tensor.k * form.code_bits() / 8));
  if (tensor.codes.view.bytes.size() == codes) return {};
  return unlike("codes", fmt::format("of {} bytes", tensor.codes.view.bytes.size()),
                std::to_string(codes));
}

// The row of scales that serves each block of 16 rows, as f32.
Result<void> pack_block_scales(const WeightForm& form, const QuantizedTensor& tensor,
                               std::span<std::byte> to) {
  const auto groups = size_of(form.groups(tensor.k));
  const std::size_t row_bytes = groups * size_of(dtype_bits(form.scale_dtype)) / 8;
  std::vector<float> row(groups);
  const auto blocks = size_of(ceil_div(tensor.n, block_rows));
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto first = static_cast<std::int64_t>(b) * block_rows;
    const auto from = size_of(form.scale_rows == 0 ? 0 : first / form.scale_rows) * row_bytes;
    FEWBIT_TRY(
        convert_to_f32(form.scale_dtype, tensor.scales.view.bytes.subspan(from, row_bytes), row));
    std::memcpy(to.data() + b * groups * 4, row.data(), groups * 4);
  }
  return {};
}

// Element (row, column) of a row-major array of whole bytes or of parts of one.
void put(std::span<std::byte> to, int bits, std::int64_t index, std::uint64_t value) {
  if (bits < 8) {
    to[size_of(index * bits / 8)] |= static_cast<std::byte>(value << (index * bits % 8));
    return;
  }
  const auto width = size_of(bits / 8);
  std::memcpy(to.data() + size_of(index) * width, &value, width);
}

template <Layout L>
void unpack_rows(Dims dims, std::span<const std::byte> from, std::span<std::byte> to) {
  unpack<L>(dims, from, [&](std::int64_t n, std::int64_t k, std::uint64_t value) {
    put(to, L::bits, n * dims.k + k, value);
  });
}

template <Layout L>
void unpack_ordered(Dims dims, std::span<const std::byte> from,
                    const std::vector<std::int32_t>& order, std::span<std::byte> to) {
  unpack<L>(dims, from, [&](std::int64_t n, std::int64_t k, std::uint64_t value) {
    put(to, L::bits, n * dims.k + (order.empty() ? k : order[size_of(k)]), value);
  });
}

void unpack_codes(const WeightForm& form, Dims dims, std::span<const std::byte> from,
                  const std::vector<std::int32_t>& order, std::span<std::byte> to) {
  switch (form.code_bits()) {
    case 2:
      return unpack_rows<CpuPairLane16>(dims, from, to);
    case 3:
      return unpack_rows<CpuTripleLane16>(CpuTripleLane16::of_codes(dims), from, to);
    case 4:
      return unpack_ordered<CpuF4Lane16>(dims, from, order, to);
    default:
      return unpack_ordered<CpuByteLane16>(dims, from, order, to);
  }
}

Result<Tensor> unpack_scales(const WeightForm& form, Dims dims, std::span<const std::byte> from) {
  const Dims grid{.n = groups_along(dims.n, form.scale_rows), .k = form.groups(dims.k)};
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(form.scale_dtype, {grid.n, grid.k}));
  if (form.scale == Lane16Scale::f32_blocks) {
    const auto groups = size_of(grid.k);
    const std::size_t row_bytes = out.bytes.size() / size_of(grid.n);
    std::vector<float> row(groups);
    for (std::int64_t r = 0; r < grid.n; ++r) {
      const std::size_t block = size_of(r * form.scale_rows / block_rows);
      std::memcpy(row.data(), from.data() + block * groups * 4, groups * 4);
      FEWBIT_TRY(convert_from_f32(row, form.scale_dtype,
                                  out.bytes.subspan(size_of(r) * row_bytes, row_bytes)));
    }
    return out.tensor;
  }
  const std::int64_t bytes = lane16_scale_bytes(form.scale);
  if (bytes == 1) unpack_rows<CpuLane16Groups<8>>(grid, from, out.bytes);
  if (bytes == 2) unpack_rows<CpuLane16Groups<16>>(grid, from, out.bytes);
  if (bytes == 4) unpack_rows<CpuLane16Groups<32>>(grid, from, out.bytes);
  return out.tensor;
}

Result<Tensor> group_index(const WeightForm& form, const std::vector<std::int32_t>& order) {
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::i32, {std::ssize(order)}));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto group = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / form.group);
    std::memcpy(out.bytes.data() + size_of(order[i]) * 4, &group, 4);
  }
  return out.tensor;
}

// Blocks of GGUF: nothing but their order changes.
Result<void> pack_blocks(const WeightForm& form, const QuantizedTensor& tensor,
                         std::span<std::byte> to) {
  if (const auto rows = gguf_rows(tensor); !rows) return rows.error();
  const Dims dims{.n = tensor.n, .k = tensor.k};
  const auto pack = form.codes == Lane16Codes::q4_k ? pack_cpu_q4_k : pack_cpu_q6_k;
  pack(dims, bytes_of(tensor.codes.view.bytes), bytes_of(to));
  std::ranges::fill(to.subspan(size_of(used_sizes(form, dims).codes)), std::byte{0});
  return {};
}

Result<QuantizedTensor> unpack_blocks(const WeightForm& form, const Scheme& stored, Dims dims,
                                      std::span<const std::byte> from, float global_scale) {
  const std::int64_t row_bytes = dims.k / 256 * lane16_cell_bytes(form.codes);
  QuantizedTensor out;
  out.n = dims.n;
  out.k = dims.k;
  out.scheme = stored;
  out.global_scale = out.stored_global_scale = global_scale;
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, {dims.n, row_bytes}));
  const auto unpack = form.codes == Lane16Codes::q4_k ? unpack_cpu_q4_k : unpack_cpu_q6_k;
  unpack(dims, bytes_of(from), bytes_of(codes.bytes));
  out.codes = std::move(codes.tensor);
  return out;
}

}  // namespace

std::optional<PackedSizes> packed_sizes(const WeightForm& form, Dims dims) {
  // 4 bytes an element bound codes, scales and zero points, each.
  const auto rows = checked_round_up(dims.n, block_rows);
  const auto elements = rows ? checked_mul(*rows, dims.k) : std::nullopt;
  const auto most = elements ? checked_mul(*elements, std::int64_t{4}) : std::nullopt;
  if (!most || !checked_add(*most, alignment)) return std::nullopt;
  const PackedSizes used = used_sizes(form, dims);
  return PackedSizes{.codes = round_up(used.codes, alignment),
                     .scales = round_up(used.scales, alignment),
                     .zeros = round_up(used.zeros, alignment)};
}

Result<void> pack_matrix(const WeightForm& form, const QuantizedTensor& tensor,
                         const std::vector<std::int32_t>& order, const PackedSpans& to) {
  if (form.in_blocks()) return pack_blocks(form, tensor, to.codes);
  FEWBIT_TRY(check_parts(form, tensor));
  const Dims dims{.n = tensor.n, .k = tensor.k};
  const Dims grid = grid_of(form, dims);
  std::vector<std::uint8_t> ordered;
  const std::uint8_t* codes = bytes_of(tensor.codes.view.bytes);
  if (form.ordered) {
    ordered = order_codes(form.code_bits(), dims.n, tensor.codes.view.bytes, order);
    codes = ordered.data();
  }
  pack_cpu_lane16_codes(form.code_bits(), dims, codes, bytes_of(to.codes), padding_of(form));
  if (form.scale == Lane16Scale::f32_blocks) {
    FEWBIT_TRY(pack_block_scales(form, tensor, to.scales));
  } else {
    pack_cpu_lane16_groups(static_cast<int>(lane16_scale_bytes(form.scale) * 8), grid,
                           bytes_of(tensor.scales.view.bytes), bytes_of(to.scales));
  }
  if (form.zeros) {
    pack_cpu_lane16_groups(8, grid, bytes_of(tensor.zero_points.view.bytes), bytes_of(to.zeros));
  }
  const PackedSizes used = used_sizes(form, dims);
  std::ranges::fill(to.codes.subspan(size_of(used.codes)), std::byte{0});
  std::ranges::fill(to.scales.subspan(size_of(used.scales)), std::byte{0});
  std::ranges::fill(to.zeros.subspan(size_of(used.zeros)), std::byte{0});
  return {};
}

Result<QuantizedTensor> unpack_matrix(const Scheme& stored, Dims dims, const ConstPackedSpans& from,
                                      const std::vector<std::int32_t>& order, float global_scale) {
  const WeightForm form = *form_of(stored);
  if (form.in_blocks()) return unpack_blocks(form, stored, dims, from.codes, global_scale);
  QuantizedTensor out;
  out.n = dims.n;
  out.k = dims.k;
  out.scheme = read_as(stored);
  out.global_scale = global_scale;
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(out.scheme.weight, {dims.n, dims.k}));
  unpack_codes(form, dims, from.codes, order, codes.bytes);
  out.codes = std::move(codes.tensor);
  FEWBIT_TRY(out.scales, unpack_scales(form, dims, from.scales));
  if (form.zeros) {
    const Dims grid = grid_of(form, dims);
    FEWBIT_TRY(OwnedTensor zeros,
               allocate_tensor(form.offset_codes ? DType::u8 : DType::i8, {grid.n, grid.k}));
    unpack_rows<CpuLane16Groups<8>>(grid, from.zeros, zeros.bytes);
    out.zero_points = std::move(zeros.tensor);
  }
  if (form.ordered) {
    FEWBIT_TRY(out.g_idx, group_index(form, order));
  }
  FEWBIT_TRY(check_quantized(out));
  return out;
}

}  // namespace fewbit::cpu
