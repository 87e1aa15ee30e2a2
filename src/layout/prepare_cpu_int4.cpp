// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_cpu_int4.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "core/float_convert.hpp"
#include "layout/awq_words.hpp"
#include "layout/check_tensor.hpp"
#include "layout/column_major.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/cpu_int4_sums.hpp"
#include "layout/element_mover.hpp"
#include "layout/gptq_words.hpp"
#include "layout/map_layouts.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

// All experts of one matrix, and one expert's share of each tensor.
struct Part {
  WordSource source;
  Dims dims;
  Dims groups;
  DType scale_dtype;
  std::span<const std::byte> words;
  std::span<const std::byte> scales;
  std::span<const std::byte> zeros;  // empty: 8
};

using Zeros = std::array<std::int8_t, sum_columns>;

Zeros zeros_of(const Part& part, std::int64_t first_n, std::int64_t group) {
  Zeros zeros{};
  if (part.zeros.empty()) {
    zeros.fill(8);
    return zeros;
  }
  zeros = column_codes(part.source, part.groups, part.zeros, first_n, group);
  if (part.source == WordSource::gptq) {
    for (std::int8_t& zero : zeros) ++zero;
  }
  return zeros;
}

// Of 32 columns.
template <std::int64_t block_k>
void write_sums(const Part& part, std::int64_t first_n, std::span<std::byte> out) {
  const std::int64_t group = part.dims.k / part.groups.k;
  for (std::int64_t first = 0; first < part.dims.k; first += block_k) {
    CodeSums sums =
        sum_codes(part.source, part.dims, part.words, {.n = first_n, .k = first}, block_k);
    const Zeros zeros = zeros_of(part, first_n, first / group);  // a block is within one group
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] -= std::int32_t{block_k} * zeros[i];
    const Place place = CpuInt4Blocks<block_k>::sum_place(part.dims, first_n, first);
    std::memcpy(out.data() + place.byte, sums.data(), sizeof sums);
  }
}

// 32 columns of one group.
struct GroupStrip {
  Dims groups;
  std::int64_t first_n;
  std::int64_t group;
};
void write_group(const GroupStrip& at, const Zeros& zeros, DType scale_dtype,
                 std::span<const std::byte> scales_in, const CpuInt4Output& out) {
  const std::int64_t to = CpuInt4Groups<8>::place(at.groups, at.first_n, at.group).byte;
  std::memcpy(out.zeros.data() + to, zeros.data(), sizeof zeros);
  std::array<std::uint16_t, sum_columns> stored{};
  const std::int64_t from = ColumnMajor<16>::place(at.groups, at.first_n, at.group).byte;
  std::memcpy(stored.data(), scales_in.data() + from, sizeof stored);
  std::array<float, sum_columns> scales{};
  for (std::size_t i = 0; i < scales.size(); ++i) {
    scales[i] = scale_dtype == DType::bf16 ? bf16_to_f32(stored[i]) : f16_to_f32(stored[i]);
  }
  std::memcpy(out.scales.data() + to * 4, scales.data(), sizeof scales);
}

void write_groups(const Part& part, std::int64_t first_n, const CpuInt4Output& out) {
  for (std::int64_t group = 0; group < part.groups.k; ++group) {
    write_group({.groups = part.groups, .first_n = first_n, .group = group},
                zeros_of(part, first_n, group), part.scale_dtype, part.scales, out);
  }
}

// Rows of one part: their sums, and their zero points of every group.
template <std::int64_t block_k>
void write_row_sums(const CpuInt4Rows& rows, const CodeRows& part, Dims dims, Dims groups,
                    std::span<std::byte> blocks) {
  const std::int64_t group = dims.k / groups.k;
  for (std::int64_t i = 0; i < part.dims.n; ++i) {
    const std::int64_t n = part.first_n + i;
    const std::byte* const codes = part.codes.data() + i * dims.k / 2;
    for (std::int64_t first = 0; first < dims.k; first += block_k) {
      const auto cell = static_cast<std::size_t>(n * groups.k + first / group);
      const std::int32_t zero = rows.zeros.empty() ? 8 : rows.zeros[cell];
      const std::int32_t sum = sum_row(codes + first / 2, block_k / 2, rows.signed_codes) -
                               static_cast<std::int32_t>(block_k) * zero;
      const Place place = CpuInt4Blocks<block_k>::sum_place(dims, n, first);
      std::memcpy(blocks.data() + place.byte, &sum, sizeof sum);
    }
  }
}

template <std::int64_t block_k>
void pack_rows(const CpuInt4Rows& rows, Dims dims, Dims groups, std::span<std::byte> blocks) {
  for (const CodeRows& part : rows.parts) {
    write_row_sums<block_k>(rows, part, dims, groups, blocks);
    move_code_rows<CpuInt4Blocks<block_k>>(part, rows.signed_codes, dims, blocks);
  }
}

Zeros zeros_of(const CpuInt4Rows& rows, const GroupStrip& at) {
  Zeros zeros{};
  zeros.fill(8);
  if (rows.zeros.empty()) return zeros;
  for (std::size_t i = 0; i < zeros.size(); ++i) {
    const std::int64_t n = at.first_n + static_cast<std::int64_t>(i);
    zeros[i] = rows.zeros[static_cast<std::size_t>(n * at.groups.k + at.group)];
  }
  return zeros;
}

template <std::int64_t block_k>
ElementMap map_blocks(WordSource source, Dims dims) {
  using Blocks = CpuInt4Blocks<block_k>;
  return source == WordSource::gptq ? map_layouts<GptqWords<4>, Blocks>(dims, {.n = 64, .k = 128})
                                    : map_layouts<AwqWords<4>, Blocks>(dims, {.n = 256, .k = 32});
}

template <std::int64_t block_k>
void pack_blocks(const Part& all, const CpuInt4Output& out, std::int64_t experts,
                 Executor& executor) {
  const ElementMover mover(map_blocks<block_k>(all.source, all.dims), packing_isa());
  const std::int64_t tasks = mover.tasks();
  const auto pack_task = [&](std::int64_t expert, std::int64_t task) {
    const auto share = [&](auto bytes) {
      const std::size_t size = bytes.size() / static_cast<std::size_t>(experts);
      return bytes.subspan(static_cast<std::size_t>(expert) * size, size);
    };
    Part part = all;
    part.words = share(all.words);
    part.scales = share(all.scales);
    part.zeros = share(all.zeros);
    const CpuInt4Output to{
        .blocks = share(out.blocks), .scales = share(out.scales), .zeros = share(out.zeros)};
    const std::int64_t end = task + 1 < tasks ? mover.first_n(task + 1) : all.dims.n;
    for (std::int64_t n = mover.first_n(task); n < end; n += sum_columns) {
      write_sums<block_k>(part, n, to.blocks);
      write_groups(part, n, to);
    }
    mover.run(task, part.words.data(), to.blocks.data());
  };
  parallel_ranges(executor, experts * tasks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) pack_task(i / tasks, i % tasks);
  });
}

struct Packer {
  void (*words)(const Part&, const CpuInt4Output&, std::int64_t, Executor&) = nullptr;
  void (*rows)(const CpuInt4Rows&, Dims dims, Dims groups, std::span<std::byte>) = nullptr;
};

// None of other blocks.
Packer packer(std::int64_t block_k) {
  switch (block_k) {
    case 16:
      return {pack_blocks<16>, pack_rows<16>};
    case 32:
      return {pack_blocks<32>, pack_rows<32>};
    case 64:
      return {pack_blocks<64>, pack_rows<64>};
    case 128:
      return {pack_blocks<128>, pack_rows<128>};
    default:
      return {};
  }
}

Result<void> check_sizes(Dims dims, std::int64_t group, std::int64_t block_k) {
  if (dims.n % 32 != 0) {
    return bad("words", "n is " + std::to_string(dims.n) + ", expected a multiple of 32");
  }
  if (packer(block_k).words == nullptr) {
    return bad("words", "blocks of " + std::to_string(block_k) +
                            " k, expected a group size of 16, 32, 64 or a multiple of 128");
  }
  if (dims.k % group == 0 && dims.k % block_k == 0) return {};
  return bad("words", "k is " + std::to_string(dims.k) + ", expected a multiple of the group, " +
                          std::to_string(group) + ", and of the block, " + std::to_string(block_k));
}

Result<void> check_scales(const TensorView& scales, const Shape& shape) {
  const DType dtype = scales.dtype;
  if (dtype != DType::f16 && dtype != DType::bf16) {
    return bad("scales", "dtype " + std::string(dtype_name(dtype)) + ", expected f16 or bf16");
  }
  return check_tensor("scales", scales, dtype, shape);
}

Result<void> check_tensors(const CpuInt4Matrix& matrix, Dims dims, std::int64_t experts,
                           std::int64_t groups) {
  const Shape words = matrix.source == WordSource::gptq ? Shape{experts, dims.k / 8, dims.n}
                                                        : Shape{experts, dims.k, dims.n / 8};
  FEWBIT_TRY(check_tensor("words", matrix.words, DType::i32, words));
  FEWBIT_TRY(check_scales(matrix.scales, {experts, groups, dims.n}));
  if (!matrix.zeros) return {};
  return check_tensor("zeros", *matrix.zeros, DType::i32, {experts, groups, dims.n / 8});
}

struct Sizes {
  std::int64_t experts;
  std::int64_t block_k;
  Dims groups;

  Shape blocks(Dims dims) const {
    return {experts, dims.n / 32, dims.k / block_k, 16 * block_k + 128};
  }
  Shape grid() const { return {experts, groups.n / 32, groups.k, 32}; }
};

Result<Sizes> sizes_of(Dims dims, std::int64_t group_size) {
  FEWBIT_TRY(check_extent("n", dims.n));
  FEWBIT_TRY(check_extent("k", dims.k));
  const std::int64_t group = group_size == -1 ? dims.k : group_size;
  FEWBIT_TRY(check_extent("group_size", group));
  const std::int64_t block_k = std::min<std::int64_t>(group, 128);
  FEWBIT_TRY(check_sizes(dims, group, block_k));
  return Sizes{.experts = 1, .block_k = block_k, .groups = {.n = dims.n, .k = dims.k / group}};
}

Result<Sizes> checked_sizes(const CpuInt4Matrix& matrix, Dims dims, std::int64_t group_size) {
  FEWBIT_TRY(Sizes sizes, sizes_of(dims, group_size));
  const Shape& shape = matrix.words.shape;
  if (shape.size() != 3 || shape[0] <= 0) {
    return bad("words", "shape " + shape_text(shape) + ", expected three extents, experts first");
  }
  sizes.experts = shape[0];
  FEWBIT_TRY(check_tensors(matrix, dims, sizes.experts, sizes.groups.k));
  return sizes;
}

Result<void> check_memory(const char* name, std::span<const std::byte> memory, DType dtype,
                          const Shape& shape) {
  FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, shape));
  if (memory.size() == bytes) return {};
  return bad(name, "memory of " + std::to_string(memory.size()) + " bytes, expected " +
                       std::to_string(bytes));
}

Result<void> check_output(const CpuInt4Output& out, const Sizes& sizes, Dims dims) {
  FEWBIT_TRY(check_memory("blocks", out.blocks, DType::u8, sizes.blocks(dims)));
  FEWBIT_TRY(check_memory("scales", out.scales, DType::f32, sizes.grid()));
  return check_memory("zeros", out.zeros, DType::i8, sizes.grid());
}

Result<void> check_rows(const CpuInt4Rows& rows, Dims dims, Dims groups) {
  std::int64_t next = 0;
  for (const CodeRows& part : rows.parts) {
    const auto bytes = static_cast<std::size_t>(part.dims.n * (dims.k / 2));
    if (part.first_n != next || part.dims.k != dims.k || part.codes.size() != bytes) {
      return bad("rows", std::to_string(part.codes.size()) + " bytes of " +
                             std::to_string(part.dims.n) + " x " + std::to_string(part.dims.k) +
                             " codes from row " + std::to_string(part.first_n) + ", expected k " +
                             std::to_string(dims.k) + " from row " + std::to_string(next));
    }
    next += part.dims.n;
  }
  if (next != dims.n) {
    return bad("rows", std::to_string(next) + ", expected " + std::to_string(dims.n));
  }
  const auto cells = static_cast<std::size_t>(groups.n * groups.k);
  if (!rows.zeros.empty() && rows.zeros.size() != cells) {
    return bad("zeros", std::to_string(rows.zeros.size()) + ", expected " + std::to_string(cells));
  }
  return check_scales(rows.scales, {1, groups.k, groups.n});
}

}  // namespace

Result<void> prepare_cpu_int4_rows(const CpuInt4Rows& rows, Dims dims, std::int64_t group_size,
                                   const CpuInt4Output& out) {
  FEWBIT_TRY(const Sizes sizes, sizes_of(dims, group_size));
  FEWBIT_TRY(check_rows(rows, dims, sizes.groups));
  FEWBIT_TRY(check_output(out, sizes, dims));
  packer(sizes.block_k).rows(rows, dims, sizes.groups, out.blocks);
  for (std::int64_t n = 0; n < dims.n; n += sum_columns) {
    for (std::int64_t group = 0; group < sizes.groups.k; ++group) {
      const GroupStrip at{.groups = sizes.groups, .first_n = n, .group = group};
      write_group(at, zeros_of(rows, at), rows.scales.dtype, rows.scales.bytes, out);
    }
  }
  return {};
}

Result<void> prepare_cpu_int4(const CpuInt4Matrix& matrix, Dims dims, std::int64_t group_size,
                              const CpuInt4Output& out, Executor& executor) {
  FEWBIT_TRY(const Sizes sizes, checked_sizes(matrix, dims, group_size));
  FEWBIT_TRY(check_output(out, sizes, dims));
  const Part all{.source = matrix.source,
                 .dims = dims,
                 .groups = sizes.groups,
                 .scale_dtype = matrix.scales.dtype,
                 .words = matrix.words.bytes,
                 .scales = matrix.scales.bytes,
                 .zeros = matrix.zeros ? matrix.zeros->bytes : std::span<const std::byte>{}};
  packer(sizes.block_k).words(all, out, sizes.experts, executor);
  return {};
}

Result<CpuInt4Result> prepare_cpu_int4(const CpuInt4Matrix& matrix, Dims dims,
                                       std::int64_t group_size, Executor& executor) {
  FEWBIT_TRY(const Sizes sizes, checked_sizes(matrix, dims, group_size));
  FEWBIT_TRY(OwnedTensor blocks, allocate_tensor(DType::u8, sizes.blocks(dims)));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(DType::f32, sizes.grid()));
  FEWBIT_TRY(OwnedTensor zeros, allocate_tensor(DType::i8, sizes.grid()));
  FEWBIT_TRY(prepare_cpu_int4(
      matrix, dims, group_size,
      CpuInt4Output{.blocks = blocks.bytes, .scales = scales.bytes, .zeros = zeros.bytes},
      executor));
  return CpuInt4Result{.blocks = blocks.tensor, .scales = scales.tensor, .zeros = zeros.tensor};
}

}  // namespace fewbit
