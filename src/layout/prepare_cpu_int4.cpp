// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_cpu_int4.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/float_bits.hpp"
#include "core/float_convert.hpp"
#include "layout/awq_words.hpp"
#include "layout/check_tensor.hpp"
#include "layout/column_major.hpp"
#include "layout/column_words.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/gptq_words.hpp"
#include "layout/pack.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

// One expert.
struct Part {
  WordSource source;
  Dims dims;
  Dims groups;
  std::span<const std::byte> words;
  std::span<const std::byte> zeros;  // empty: 8

  std::int64_t code(std::int64_t n, std::int64_t k) const {
    const Place place = source == WordSource::gptq ? GptqWords<4>::place(dims, n, k)
                                                   : AwqWords<4>::place(dims, n, k);
    return static_cast<std::int64_t>(read_bits<4>(words, place));
  }
  std::int64_t zero(std::int64_t n, std::int64_t group) const {
    if (zeros.empty()) return 8;
    if (source == WordSource::awq) {
      return static_cast<std::int64_t>(read_bits<4>(zeros, AwqWords<4>::place(groups, n, group)));
    }
    return static_cast<std::int64_t>(read_bits<4>(zeros, ColumnWords<4>::place(groups, n, group))) +
           1;
  }
};

template <std::int64_t block_k>
void pack_blocks(const Part& part, std::span<std::byte> out) {
  using Blocks = CpuInt4Blocks<block_k>;
  pack<Blocks>(
      part.dims, [&](std::int64_t n, std::int64_t k) { return part.code(n, k); }, out);
  const std::int64_t group = part.dims.k / part.groups.k;
  for (std::int64_t n = 0; n < part.dims.n; ++n) {
    for (std::int64_t first = 0; first < part.dims.k; first += block_k) {
      std::int64_t sum = 0;
      for (std::int64_t k = first; k < first + block_k; ++k) {
        sum += part.code(n, k) - part.zero(n, k / group);
      }
      write_bits<32>(out, Blocks::sum_place(part.dims, n, first), static_cast<std::uint64_t>(sum));
    }
  }
}

using PackBlocks = void (*)(const Part&, std::span<std::byte>);

PackBlocks packer(std::int64_t block_k) {
  switch (block_k) {
    case 16:
      return pack_blocks<16>;
    case 32:
      return pack_blocks<32>;
    case 64:
      return pack_blocks<64>;
    case 128:
      return pack_blocks<128>;
    default:
      return nullptr;
  }
}

Result<void> check_sizes(Dims dims, std::int64_t group, std::int64_t block_k) {
  if (dims.n % 32 != 0) {
    return bad("words", "n is " + std::to_string(dims.n) + ", expected a multiple of 32");
  }
  if (packer(block_k) == nullptr) {
    return bad("words", "blocks of " + std::to_string(block_k) +
                            " k, expected a group size of 16, 32, 64 or a multiple of 128");
  }
  if (dims.k % group == 0 && dims.k % block_k == 0) return {};
  return bad("words", "k is " + std::to_string(dims.k) + ", expected a multiple of the group, " +
                          std::to_string(group) + ", and of the block, " + std::to_string(block_k));
}

Result<void> check_tensors(const CpuInt4Matrix& matrix, Dims dims, std::int64_t experts,
                           std::int64_t groups) {
  const Shape words = matrix.source == WordSource::gptq ? Shape{experts, dims.k / 8, dims.n}
                                                        : Shape{experts, dims.k, dims.n / 8};
  FEWBIT_TRY(check_tensor("words", matrix.words, DType::i32, words));
  const DType dtype = matrix.scales.dtype;
  if (dtype != DType::f16 && dtype != DType::bf16) {
    return bad("scales", "dtype " + std::string(dtype_name(dtype)) + ", expected f16 or bf16");
  }
  FEWBIT_TRY(check_tensor("scales", matrix.scales, dtype, {experts, groups, dims.n}));
  if (!matrix.zeros) return {};
  return check_tensor("zeros", *matrix.zeros, DType::i32, {experts, groups, dims.n / 8});
}

void pack_scales(DType dtype, Dims groups, std::span<const std::byte> scales,
                 std::span<std::byte> out) {
  pack<CpuInt4Groups<32>>(
      groups,
      [&](std::int64_t n, std::int64_t k) {
        const auto bits =
            static_cast<std::uint16_t>(read_bits<16>(scales, ColumnMajor<16>::place(groups, n, k)));
        return float_bits::of(dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits));
      },
      out);
}

}  // namespace

Result<CpuInt4Result> prepare_cpu_int4(const CpuInt4Matrix& matrix, Dims dims,
                                       std::int64_t group_size) {
  FEWBIT_TRY(check_extent("n", dims.n));
  FEWBIT_TRY(check_extent("k", dims.k));
  const std::int64_t group = group_size == -1 ? dims.k : group_size;
  FEWBIT_TRY(check_extent("group_size", group));
  const std::int64_t block_k = std::min<std::int64_t>(group, 128);
  FEWBIT_TRY(check_sizes(dims, group, block_k));
  const Shape& shape = matrix.words.shape;
  if (shape.size() != 3 || shape[0] <= 0) {
    return bad("words", "shape " + shape_text(shape) + ", expected three extents, experts first");
  }
  const std::int64_t experts = shape[0];
  const Dims groups{.n = dims.n, .k = dims.k / group};
  FEWBIT_TRY(check_tensors(matrix, dims, experts, groups.k));
  FEWBIT_TRY(OwnedTensor blocks, allocate_tensor(DType::u8, {experts, dims.n / 32, dims.k / block_k,
                                                             16 * block_k + 128}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(DType::f32, {experts, dims.n / 32, groups.k, 32}));
  FEWBIT_TRY(OwnedTensor zeros, allocate_tensor(DType::i8, {experts, dims.n / 32, groups.k, 32}));
  for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
    const auto share = [&](auto all) {
      const std::size_t bytes = all.size() / static_cast<std::size_t>(experts);
      return all.subspan(e * bytes, bytes);
    };
    Part part{.source = matrix.source,
              .dims = dims,
              .groups = groups,
              .words = share(matrix.words.bytes),
              .zeros = {}};
    if (matrix.zeros) part.zeros = share(matrix.zeros->bytes);
    packer(block_k)(part, share(blocks.bytes));
    pack_scales(matrix.scales.dtype, groups, share(matrix.scales.bytes), share(scales.bytes));
    pack<CpuInt4Groups<8>>(
        groups, [&](std::int64_t n, std::int64_t k) { return part.zero(n, k); },
        share(zeros.bytes));
  }
  return CpuInt4Result{.blocks = blocks.tensor, .scales = scales.tensor, .zeros = zeros.tensor};
}

}  // namespace fewbit
