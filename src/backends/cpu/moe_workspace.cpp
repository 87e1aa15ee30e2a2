// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/moe_workspace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "backends/cpu/weight_form.hpp"
#include "core/checked.hpp"

namespace fewbit::cpu {
namespace {

// Hands out pieces at multiples of 64 bytes; without memory it only adds up.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}

  template <class T>
  void take(std::optional<std::int64_t> count, std::span<T>& piece) {
    const auto bytes = count ? checked_mul(*count, std::int64_t{sizeof(T)}) : std::nullopt;
    const auto padded = bytes ? checked_round_up(*bytes, std::int64_t{64}) : std::nullopt;
    const auto next = padded && used_ ? checked_add(*used_, *padded) : std::nullopt;
    if (memory_ != nullptr && next) {
      piece = {reinterpret_cast<T*>(memory_ + *used_), static_cast<std::size_t>(*count)};
    }
    used_ = next;
  }
  std::optional<std::int64_t> used() const { return used_; }

 private:
  std::byte* memory_;
  std::optional<std::int64_t> used_ = 0;
};

// One description for the size and for the pieces, so that they can't disagree.
std::optional<std::int64_t> lay_out(const MoeProblem& problem, Operand operand, std::int64_t tokens,
                                    std::byte* memory, MoeWorkspace& workspace) {
  const auto routes = checked_mul(tokens, std::int64_t{problem.top_k});
  const auto per_route = [&](std::int64_t features, std::int64_t step = 16) {
    const auto padded = checked_round_up(features, step);
    return routes && padded ? checked_mul(*routes, *padded) : std::nullopt;
  };
  const std::int64_t experts = problem.num_experts;
  Pieces pieces(memory);
  pieces.take(experts, workspace.counts);
  pieces.take(experts + 1, workspace.offsets);
  pieces.take(routes, workspace.routes);
  pieces.take(routes, workspace.positions);
  pieces.take(experts + 1, workspace.panel_begin);
  pieces.take(routes, workspace.panel_of);
  pieces.take(routes ? checked_add(experts, *routes / max_panel_tokens) : std::nullopt,
              workspace.panels);
  pieces.take(routes, workspace.hidden_amax);
  if (operand == Operand::panels) {
    pieces.take(per_route(problem.hidden_size), workspace.hidden);
    pieces.take(per_route(problem.intermediate_size), workspace.activated);
    return pieces.used();
  }
  const auto operand_of = [&](std::int64_t features) {
    const auto values = per_route(features, tile_k);
    return values ? checked_add(*values, tile_slack) : std::nullopt;
  };
  pieces.take(operand_of(problem.hidden_size), workspace.hidden_tiles);
  pieces.take(operand_of(problem.intermediate_size), workspace.activated_tiles);
  const auto out = checked_add(problem.hidden_size, std::int64_t{16});
  pieces.take(out ? per_route(*out) : std::nullopt, workspace.outputs);
  return pieces.used();
}

}  // namespace

std::int64_t even_tokens(const MoeProblem& problem, std::int64_t tokens) {
  const std::int64_t routes = tokens * problem.top_k;
  const std::int64_t active =
      std::clamp<std::int64_t>(routes, 1, std::max<std::int64_t>(problem.num_experts, 1));
  return std::max<std::int64_t>((routes + active - 1) / active, 1);
}

OperandChoice operand_choice(const Kernels& kernels, const MoeProblem& problem) {
  const auto on_tiles = [&kernels](const Scheme& scheme) {
    const auto form = form_of(scheme);
    return form && kernels.tiles != nullptr && kernels.tiles(form->codes) != nullptr;
  };
  const bool tiles = problem.activation_dtype == DType::bf16 && on_tiles(problem.gate_up) &&
                     on_tiles(problem.down);
  const bool packed = form_of(problem.gate_up) && form_of(problem.down);
  return {.many = tiles ? Operand::tiles : Operand::panels,
          .least_tile_tokens = kernels.least_tile_tokens,
          .panel_tokens = packed ? kernels.lane16_tokens : max_panel_tokens};
}

Result<std::uint64_t> moe_workspace_bytes(const MoeProblem& problem, Operand operand,
                                          std::int64_t tokens) {
  MoeWorkspace unused;
  const auto bytes = lay_out(problem, operand, tokens, nullptr, unused);
  if (bytes) return static_cast<std::uint64_t>(*bytes);
  return Error{
      ErrorCode::limit,
      fmt::format("workspace of {} tokens * top_k {} * ({} + {}) floats is above 2^63 bytes",
                  tokens, problem.top_k, problem.hidden_size, problem.intermediate_size),
      problem.where};
}

MoeWorkspace moe_workspace(const MoeProblem& problem, Operand operand, std::int64_t tokens,
                           std::span<std::byte> memory) {
  MoeWorkspace workspace;
  lay_out(problem, operand, tokens, memory.data(), workspace);
  return workspace;
}

}  // namespace fewbit::cpu
