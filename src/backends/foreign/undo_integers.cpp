// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/undo_integers.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "backends/foreign/expert_matrices.hpp"
#include "backends/foreign/undo.hpp"
#include "core/float_convert.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/marlin_zeros.hpp"
#include "layout/trtllm_blocks.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit::foreign {
namespace {

Dims dims_of(const Stack& stack) { return {.n = stack.rows(), .k = stack.columns()}; }

// Rows of codes as the loaders have them: without sign, zeros behind rows and columns of each part.
// flip: what is exclusive-ored into every byte of signed codes, or of others when they get a sign.
Result<OwnedTensor> padded_codes(const Stack& stack, Dims padded, unsigned flip) {
  const std::int64_t bits = dtype_bits(stack.scheme().weight);
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, {padded.n * padded.k * bits / 8}));
  std::int64_t row = 0;
  for (const QuantizedTensor* part : stack.parts) {
    const std::byte* from = part->codes.view.bytes.data();
    for (std::int64_t n = 0; n < part->n; ++n) {
      std::byte* to = out.bytes.data() + (row + n) * (padded.k * bits / 8);
      const std::int64_t bytes = part->k * bits / 8;
      std::transform(from + n * bytes, from + (n + 1) * bytes, to,
                     [flip](std::byte byte) { return byte ^ static_cast<std::byte>(flip); });
    }
    row += padded.n / std::ssize(stack.parts);
  }
  return out;
}

// Makes codes with a sign the ones that are 8, or 128, higher.
unsigned unsigned_flip(const Stack& stack) {
  const DType dtype = stack.scheme().weight;
  if (dtype == DType::i4) return 0x88U;
  return dtype == DType::i8 ? 0x80U : 0U;
}

// Column p of the rows becomes what is column order[p] of them.
template <int bits>
Result<void> reorder_columns(std::span<std::byte> rows, Dims dims, std::span<const std::byte> order,
                             const std::string& name) {
  std::vector<std::byte> row(static_cast<std::size_t>(dims.k * bits / 8));
  for (std::int64_t n = 0; n < dims.n; ++n) {
    const auto own = rows.subspan(static_cast<std::size_t>(n) * row.size(), row.size());
    std::ranges::copy(own, row.begin());
    for (std::int64_t p = 0; p < dims.k; ++p) {
      std::int32_t from = 0;
      std::memcpy(&from, order.data() + p * 4, sizeof from);
      if (from < 0 || from >= dims.k) {
        return Error{ErrorCode::inconsistent,
                     fmt::format("{} has column {} of {}", name, from, dims.k), ""};
      }
      const Dims one{.n = 1, .k = dims.k};
      write_bits<bits>(own, RowMajor<bits>::place(one, 0, p),
                       read_bits<bits>(row, RowMajor<bits>::place(one, 0, from)));
    }
  }
  return {};
}

// What a stack has beside its codes, by rows; a padded one has zeros behind the rows of each part.
class Values {
 public:
  // scales in that type
  static Result<Values> of(const Stack& stack, DType type, std::int64_t padded_rows) {
    Values values(stack, padded_rows);
    FEWBIT_TRY(values.scales_, scales_by_row(stack, type));
    if (stack.has_zeros()) {
      FEWBIT_TRY(values.zeros_, zero_rows(stack));
    }
    return values;
  }

  std::uint64_t scale(std::int64_t row, std::int64_t group) const {
    const std::int64_t at = cell(row, group);
    std::uint16_t bits = 0;
    if (at >= 0) std::memcpy(&bits, scales_.bytes.data() + 2 * at, sizeof bits);
    return bits;
  }
  std::uint64_t zero(std::int64_t row, std::int64_t group, std::int64_t middle) const {
    const std::int64_t at = cell(row, group);
    if (at < 0) return 0;
    return static_cast<std::uint8_t>(zeros_.empty() ? middle
                                                    : zeros_[static_cast<std::size_t>(at)]);
  }

 private:
  Values(const Stack& stack, std::int64_t padded_rows)
      : part_rows_(stack.parts.front()->n),
        padded_part_(padded_rows / std::ssize(stack.parts)),
        groups_(stack.groups()) {}

  // -1: padding
  std::int64_t cell(std::int64_t row, std::int64_t group) const {
    const std::int64_t in_part = row % padded_part_;
    if (in_part >= part_rows_ || group >= groups_) return -1;
    return (row / padded_part_ * part_rows_ + in_part) * groups_ + group;
  }

  std::int64_t part_rows_;
  std::int64_t padded_part_;
  std::int64_t groups_;
  OwnedTensor scales_;  // 16 bits, [rows, groups]
  std::vector<std::int8_t> zeros_;
};

// Beside the words: scales, zero points, the bias, and the groups of sorted columns.
template <int bits>
Result<void> undo_marlin_values(const MoeProblem& problem, const MoePlan& plan, const Stack& stack,
                                ConstExpertSpans from) {
  const std::string scales = stack.name + ".scales";
  const PlannedBuffer* grid = plan.find(scales);
  if (grid == nullptr || grid->shape.size() != 2) return compare_rows(scales, {}, {});
  const Dims dims{.n = grid->shape[1], .k = grid->shape[0]};
  FEWBIT_TRY(const Values values, Values::of(stack, problem.activation_dtype, dims.n));
  const auto scale = [&](std::int64_t n, std::int64_t g) { return values.scale(n, g); };
  // Sorted columns look up their group in the grouped order, be it the only one.
  const bool grouped = dims.k > 1 || plan.find(stack.name + ".order") != nullptr;
  FEWBIT_TRY(
      grouped
          ? compare_elements<MarlinScales<ScaleOrder::grouped>>(plan, from, scales, dims, scale)
          : compare_elements<MarlinScales<ScaleOrder::single>>(plan, from, scales, dims, scale));
  if (stack.has_zeros()) {
    using Zeros = MarlinZeros<bits, MarlinWordOrder::interleaved>;
    FEWBIT_TRY(compare_elements<Zeros>(
        plan, from, stack.name + ".zeros", dims,
        [&](std::int64_t n, std::int64_t g) { return values.zero(n, g, 0); }));
  }
  if (!stack.biased()) return {};
  FEWBIT_TRY(const OwnedTensor bias,
             bias_of(stack, problem.activation_dtype, dims.n / std::ssize(stack.parts)));
  return compare_elements<MarlinScales<ScaleOrder::single>>(
      plan, from, stack.name + ".bias", {.n = dims.n, .k = 1}, [&](std::int64_t n, std::int64_t) {
        return read_bits<16>(bias.bytes, {.byte = 2 * n, .bit = 0});
      });
}

// g_idx[p] is the group of column order[p].
Result<void> undo_order(const MoePlan& plan, const Stack& stack, ConstExpertSpans from) {
  if (!stack.ordered()) return {};
  const std::int64_t bytes = 4 * stack.columns();
  FEWBIT_TRY(const OwnedTensor groups, group_index(stack));
  FEWBIT_TRY(const auto order, share_to_undo(plan, from, stack.name + ".order", bytes));
  const auto word = [](std::span<const std::byte> words, std::int64_t i) {
    return static_cast<std::int64_t>(read_bits<32>(words, {.byte = 4 * i, .bit = 0}));
  };
  return compare_elements<RowMajor<32>>(
      plan, from, stack.name + ".g_idx", {.n = 1, .k = stack.columns()},
      [&](std::int64_t, std::int64_t k) {
        return static_cast<std::uint64_t>(word(groups.bytes, word(order, k)));
      });
}

template <Layout L>
Result<void> undo_words(const MoePlan& plan, const Stack& stack, ConstExpertSpans from) {
  const std::string name = stack.name + ".words";
  const PlannedBuffer* words = plan.find(name);
  if (words == nullptr || words->shape.size() != 2) return compare_rows(name, {}, {});
  // Tiles of 16 k: 32/bits codes a word.
  const Dims dims{.n = words->shape[1] * 2 / L::bits, .k = words->shape[0] * 16};
  FEWBIT_TRY(const OwnedTensor rows, padded_codes(stack, dims, unsigned_flip(stack)));
  const std::string order = stack.name + ".order";
  if (plan.find(order) != nullptr) {
    FEWBIT_TRY(const auto columns, share_to_undo(plan, from, order, dims.k * 4));
    FEWBIT_TRY(reorder_columns<L::bits>(rows.bytes, dims, columns, order));
  }
  return compare_undone<L>(plan, from, name, dims, rows.bytes);
}

template <std::int64_t block_k>
std::int32_t sum_of_block(const Stack& stack, std::span<const std::byte> rows, const Values& values,
                          std::int64_t n, std::int64_t block) {
  const Dims dims = dims_of(stack);
  const std::int64_t group = stack.group() == 0 ? dims.k : stack.group();
  std::int32_t sum = 0;
  for (std::int64_t k = block * block_k; k < (block + 1) * block_k; ++k) {
    sum += static_cast<std::int32_t>(read_bits<4>(rows, RowMajor<4>::place(dims, n, k)));
    sum -= static_cast<std::int32_t>(values.zero(n, k / group, 8));
  }
  return sum;
}

template <std::int64_t block_k>
Result<void> undo_cpu_blocks(const MoePlan& plan, const Stack& stack,
                             std::span<const std::byte> rows, const Values& values,
                             ConstExpertSpans from) {
  using Blocks = CpuInt4Blocks<block_k>;
  const std::string name = stack.name + ".blocks";
  const Dims dims = dims_of(stack);
  FEWBIT_TRY(compare_undone<Blocks>(plan, from, name, dims, rows));
  FEWBIT_TRY(const auto share, share_to_undo(plan, from, name, Blocks::bytes(dims)));
  for (std::int64_t n = 0; n < dims.n; ++n) {
    for (std::int64_t block = 0; block < dims.k / block_k; ++block) {
      const Place place = Blocks::sum_place(dims, n, block * block_k);
      const auto has = static_cast<std::int32_t>(read_bits<32>(share, place));
      const std::int32_t want = sum_of_block<block_k>(stack, rows, values, n, block);
      if (has == want) continue;
      return Error{
          ErrorCode::inconsistent,
          fmt::format("{}: sum of row {}, block {} is {}, expected {}", name, n, block, has, want),
          ""};
    }
  }
  return {};
}

Result<void> undo_cpu_values(const MoeProblem& problem, const MoePlan& plan, const Stack& stack,
                             const Values& values, ConstExpertSpans from) {
  const Dims grid{.n = stack.rows(), .k = stack.groups()};
  const bool bf16 = problem.activation_dtype == DType::bf16;
  FEWBIT_TRY(compare_elements<CpuInt4Groups<32>>(
      plan, from, stack.name + ".scales", grid, [&](std::int64_t n, std::int64_t g) {
        const auto bits = static_cast<std::uint16_t>(values.scale(n, g));
        return std::bit_cast<std::uint32_t>(bf16 ? bf16_to_f32(bits) : f16_to_f32(bits));
      }));
  return compare_elements<CpuInt4Groups<8>>(
      plan, from, stack.name + ".zeros", grid,
      [&](std::int64_t n, std::int64_t g) { return values.zero(n, g, 8); });
}

template <Gating gating>
Result<void> undo_mxint4_stack(const MoePlan& plan, const Stack& stack, ConstExpertSpans from) {
  // 8 for 0 becomes two's complement.
  const unsigned flip = unsigned_flip(stack) ^ 0x88U;
  FEWBIT_TRY(const OwnedTensor rows, padded_codes(stack, dims_of(stack), flip));
  FEWBIT_TRY(compare_undone<TrtllmBlocks<gating>>(plan, from, stack.name + ".codes", dims_of(stack),
                                                  rows.bytes));
  using Scales = TrtllmScales<16, gating, TrtllmBlock::rows_32>;
  FEWBIT_TRY(const Values values, Values::of(stack, DType::bf16, stack.rows()));
  return compare_elements<Scales>(
      plan, from, stack.name + ".scales", {.n = stack.rows(), .k = stack.groups()},
      [&](std::int64_t n, std::int64_t g) { return values.scale(n, g); });
}

Result<void> undo_cpu_stack(const MoeProblem& problem, const MoePlan& plan, const Stack& stack,
                            ConstExpertSpans from) {
  const Dims dims = dims_of(stack);
  FEWBIT_TRY(const OwnedTensor rows, padded_codes(stack, dims, unsigned_flip(stack)));
  FEWBIT_TRY(const Values values, Values::of(stack, problem.activation_dtype, dims.n));
  FEWBIT_TRY(undo_cpu_values(problem, plan, stack, values, from));
  switch (std::min<std::int64_t>(stack.group() == 0 ? dims.k : stack.group(), 128)) {
    case 16:
      return undo_cpu_blocks<16>(plan, stack, rows.bytes, values, from);
    case 32:
      return undo_cpu_blocks<32>(plan, stack, rows.bytes, values, from);
    case 64:
      return undo_cpu_blocks<64>(plan, stack, rows.bytes, values, from);
    default:
      return undo_cpu_blocks<128>(plan, stack, rows.bytes, values, from);
  }
}

}  // namespace

Result<void> undo_marlin_int(const MoeProblem& problem, const MoePlan& plan,
                             const ExpertWeights& expert, ConstExpertSpans from) {
  for (const Stack& stack : {w13_stack(expert), w2_stack(expert)}) {
    const bool four = dtype_bits(problem.down.weight) == 4;
    FEWBIT_TRY(four ? undo_words<B12xPacked>(plan, stack, from)
                    : undo_words<Marlin8Bit>(plan, stack, from));
    FEWBIT_TRY(four ? undo_marlin_values<4>(problem, plan, stack, from)
                    : undo_marlin_values<8>(problem, plan, stack, from));
    FEWBIT_TRY(undo_order(plan, stack, from));
  }
  return {};
}

Result<void> undo_cpu_int4(const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from) {
  FEWBIT_TRY(undo_cpu_stack(problem, plan, w13_stack(expert), from));
  return undo_cpu_stack(problem, plan, w2_stack(expert), from);
}

Result<void> undo_xpu_int4(const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from) {
  for (const Stack& stack : {w13_stack(expert), w2_stack(expert)}) {
    FEWBIT_TRY(const OwnedTensor rows, padded_codes(stack, dims_of(stack), unsigned_flip(stack)));
    FEWBIT_TRY(
        compare_undone<RowMajor<4>>(plan, from, stack.name + ".codes", dims_of(stack), rows.bytes));
    FEWBIT_TRY(const OwnedTensor scales, scales_by_row(stack, problem.activation_dtype));
    FEWBIT_TRY(compare_undone<RowMajor<16>>(plan, from, stack.name + ".scales",
                                            {.n = stack.rows(), .k = stack.groups()},
                                            scales.bytes));
  }
  return {};
}

Result<void> undo_mxint4(const MoeProblem& /*problem*/, const MoePlan& plan,
                         const ExpertWeights& expert, ConstExpertSpans from) {
  FEWBIT_TRY(undo_mxint4_stack<Gating::gated>(plan, w13_stack(expert, FirstPart::up), from));
  return undo_mxint4_stack<Gating::ungated>(plan, w2_stack(expert), from);
}

}  // namespace fewbit::foreign
