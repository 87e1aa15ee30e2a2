// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/undo_integers.hpp"

#include <algorithm>
#include <cstring>

#include "backends/foreign/expert_matrices.hpp"
#include "backends/foreign/undo.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/trtllm_blocks.hpp"

namespace fewbit::foreign {
namespace {

Dims dims_of(const Stack& stack) { return {.n = stack.rows(), .k = stack.columns()}; }

// Rows of codes as the loaders have them: without sign, zeros behind rows and columns of each part.
// flip: what is exclusive-ored into every byte of signed codes, or of others when they get a sign.
Result<OwnedTensor> code_rows(const Stack& stack, Dims padded, unsigned flip) {
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

template <Layout L>
Result<void> undo_words(const MoePlan& plan, const Stack& stack, ConstExpertSpans from) {
  const std::string name = stack.name + ".words";
  const PlannedBuffer* words = plan.find(name);
  if (words == nullptr || words->shape.size() != 2) return compare_rows(name, {}, {});
  // Tiles of 16 k: 32/bits codes a word.
  const Dims dims{.n = words->shape[1] * 2 / L::bits, .k = words->shape[0] * 16};
  FEWBIT_TRY(const OwnedTensor rows, code_rows(stack, dims, unsigned_flip(stack)));
  const std::string order = stack.name + ".order";
  if (plan.find(order) != nullptr) {
    FEWBIT_TRY(const auto columns, share_to_undo(plan, from, order, dims.k * 4));
    FEWBIT_TRY(reorder_columns<L::bits>(rows.bytes, dims, columns, order));
  }
  return compare_undone<L>(plan, from, name, dims, rows.bytes);
}

Result<void> undo_cpu_stack(const MoePlan& plan, const Stack& stack, ConstExpertSpans from) {
  const std::string name = stack.name + ".blocks";
  const Dims dims = dims_of(stack);
  FEWBIT_TRY(const OwnedTensor rows, code_rows(stack, dims, unsigned_flip(stack)));
  switch (std::min<std::int64_t>(stack.group() == 0 ? dims.k : stack.group(), 128)) {
    case 32:
      return compare_undone<CpuInt4Blocks<32>>(plan, from, name, dims, rows.bytes);
    case 64:
      return compare_undone<CpuInt4Blocks<64>>(plan, from, name, dims, rows.bytes);
    case 128:
      return compare_undone<CpuInt4Blocks<128>>(plan, from, name, dims, rows.bytes);
    default:
      return {};  // only packed again
  }
}

template <Gating gating>
Result<void> undo_mxint4_stack(const MoePlan& plan, const Stack& stack, ConstExpertSpans from) {
  // 8 for 0 becomes two's complement.
  const unsigned flip = unsigned_flip(stack) ^ 0x88U;
  FEWBIT_TRY(const OwnedTensor rows, code_rows(stack, dims_of(stack), flip));
  return compare_undone<TrtllmBlocks<gating>>(plan, from, stack.name + ".codes", dims_of(stack),
                                              rows.bytes);
}

}  // namespace

Result<void> undo_marlin_int(const MoeProblem& problem, const MoePlan& plan,
                             const ExpertWeights& expert, ConstExpertSpans from) {
  for (const Stack& stack : {w13_stack(expert), w2_stack(expert)}) {
    FEWBIT_TRY(dtype_bits(problem.down.weight) == 4 ? undo_words<B12xPacked>(plan, stack, from)
                                                    : undo_words<Marlin8Bit>(plan, stack, from));
  }
  return {};
}

Result<void> undo_cpu_int4(const MoeProblem& /*problem*/, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from) {
  FEWBIT_TRY(undo_cpu_stack(plan, w13_stack(expert), from));
  return undo_cpu_stack(plan, w2_stack(expert), from);
}

Result<void> undo_xpu_int4(const MoeProblem& /*problem*/, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from) {
  for (const Stack& stack : {w13_stack(expert), w2_stack(expert)}) {
    FEWBIT_TRY(const OwnedTensor rows, code_rows(stack, dims_of(stack), unsigned_flip(stack)));
    FEWBIT_TRY(
        compare_undone<RowMajor<4>>(plan, from, stack.name + ".codes", dims_of(stack), rows.bytes));
  }
  return {};
}

Result<void> undo_mxint4(const MoeProblem& /*problem*/, const MoePlan& plan,
                         const ExpertWeights& expert, ConstExpertSpans from) {
  FEWBIT_TRY(undo_mxint4_stack<Gating::gated>(plan, w13_stack(expert, FirstPart::up), from));
  return undo_mxint4_stack<Gating::ungated>(plan, w2_stack(expert), from);
}

}  // namespace fewbit::foreign
