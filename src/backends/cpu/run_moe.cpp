// SPDX-License-Identifier: Apache-2.0
// A call of a MoE layer, cut into passes.
#include <algorithm>

#include "backends/cpu/moe_pass.hpp"
#include "kernels/cpu/tile_operand.hpp"

namespace fewbit::cpu {

// Of this number of tokens and of any smaller one, which may take the other operand.
Result<std::uint64_t> Moe::workspace_bytes(std::int64_t tokens) const {
  const std::int64_t most = std::min(tokens, max_pass_tokens);
  FEWBIT_TRY(const std::uint64_t bytes, moe_workspace_bytes(problem_, operand_.many, most));
  FEWBIT_TRY(const std::uint64_t panels, moe_workspace_bytes(problem_, Operand::panels, most));
  return std::max(bytes, panels);
}

Result<void> Moe::run(const MoeArgs& args, Executor& executor) const {
  const auto row_bytes = static_cast<std::size_t>(
      problem_.hidden_size * conversions_of(problem_.activation_dtype).element_bytes);
  const auto top_k = static_cast<std::size_t>(problem_.top_k);
  for (std::int64_t first = 0; first < args.tokens; first += max_pass_tokens) {
    const auto skip = static_cast<std::size_t>(first);
    const auto count = static_cast<std::size_t>(std::min(max_pass_tokens, args.tokens - first));
    MoeArgs part;
    part.tokens = static_cast<std::int64_t>(count);
    part.hidden.dtype = args.hidden.dtype;  // without its shape, which would be a copy on the heap
    part.hidden.bytes = args.hidden.bytes.subspan(skip * row_bytes, count * row_bytes);
    part.out = args.out.subspan(skip * row_bytes, count * row_bytes);
    part.topk_ids = args.topk_ids.subspan(skip * top_k, count * top_k);
    part.topk_weights = args.topk_weights.subspan(skip * top_k, count * top_k);
    part.expert_map = args.expert_map;
    part.amax = args.amax;
    const Operand operand = operand_.of(problem_, part.tokens);
    const MoeWorkspace workspace = moe_workspace(problem_, operand, part.tokens, args.workspace);
    if (operand == Operand::panels) {
      run_moe_panels(problem_, experts_, part, workspace, operand_.panel_cut(), executor);
    } else if constexpr (has_tiles) {
      run_moe_tiles(problem_, experts_, part, workspace, tile_cost_, executor);
    }
  }
  return {};
}

}  // namespace fewbit::cpu
