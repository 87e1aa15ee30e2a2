// SPDX-License-Identifier: Apache-2.0
// A pass over a MoE layer with bf16 tokens as tiles take them (kernels/cpu/tile_operand.hpp).
#include <array>

#include "backends/cpu/moe_pass.hpp"
#include "backends/cpu/multiply_tiles.hpp"
#include "core/float_convert.hpp"

namespace fewbit::cpu {
namespace {

// Results of gate and up, each, that wait on the stack for the activation: tokens times blocks.
constexpr std::int64_t chunk_rows = max_tile_tokens;

class TilePass : MoePass {
 public:
  TilePass(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
           const MoeWorkspace& workspace, const BlockCost& cost)
      : MoePass(problem, experts, args, workspace),
        cost_(cost),
        hidden_row_(tile_row(problem.hidden_size)),
        activated_row_(tile_row(problem.intermediate_size)),
        output_row_(output_row(problem.hidden_size)),
        gate_constants_(constants_) {
    const Activation kind = problem.activation.kind;
    sigmoid_gate_ = kind == Activation::silu || kind == Activation::swigluoai;
    if (kind == Activation::silu)
      gate_constants_ = {.alpha = 1, .beta = 0, .limit = constants_.limit};
  }

  void run(Executor& executor) {
    const auto block_cost = [this](std::int64_t tokens) { return cost_.of(tokens); };
    sort(tile_cut(std::max(problem_.hidden_size, problem_.intermediate_size)));
    split(executor, kept_ * problem_.hidden_size, [this](int i, int n) { gather(i, n); });
    Rest fc1_rest;
    split(executor, serial_elements, [&](int i, int n) {
      for_blocks(blocks_of(problem_.intermediate_size), i, n, fc1_rest, block_cost,
                 [this](std::size_t expert, Range blocks) { fc1(expert, blocks); });
    });
    if (args_.amax) raise_amax(*args_.amax);
    Rest fc2_rest;
    split(executor, serial_elements, [&](int i, int n) {
      for_blocks(blocks_of(problem_.hidden_size), i, n, fc2_rest, block_cost,
                 [this](std::size_t expert, Range blocks) { fc2(expert, blocks); });
    });
    split(executor, kept_ * problem_.hidden_size, [this](int i, int n) {
      if (problem_.top_k > most_summed) return sum_blocks(i, n);
      const Range tokens = share(args_.tokens, i, n);
      for (std::int64_t t = tokens.begin; t < tokens.end; ++t) sum_routes(t);
    });
  }

 private:
  void gather(int worker, int workers) const {
    const Range positions = share(kept_, worker, workers);
    for (std::int64_t i = positions.begin; i < positions.end; ++i) {
      const Panel& panel = ws_.panels[at(ws_.panel_of[at(i)])];
      const std::int64_t t = i - panel.first;
      std::uint16_t* to = hidden_tiles(panel) + tile_place(panel.tokens, hidden_row_, t, 0);
      const std::int64_t rows = tile_rows(panel.tokens, t);
      const auto& order = experts_[expert_at(i)].hidden_order;
      ws_.hidden_amax[at(i)] =
          order.empty()
              ? tile_load(hidden_of(i), problem_.hidden_size, rows, to)
              : tile_load_ordered(hidden_of(i), order.data(), problem_.hidden_size, rows, to);
    }
  }

  // Rows of gate and up times all tokens of the expert, panel by panel.
  void fc1(std::size_t e, Range blocks) const {
    alignas(64) float gate[chunk_rows * 16];
    alignas(64) float up[chunk_rows * 16];
    const Expert& expert = experts_[e];
    for (const Panel& panel : panels_of(e)) {
      const TileTokens tokens{.x = hidden_tiles(panel), .tokens = panel.tokens};
      const std::int64_t step = chunk_rows / panel.tokens;
      for (std::int64_t b = blocks.begin; b < blocks.end; b += step) {
        const Range chunk{b, std::min(b + step, blocks.end)};
        const std::int64_t count = chunk.end - b;
        const TileResults to{
            .first = expert.gate ? gate : up, .token = 16, .block = panel.tokens * 16};
        if (expert.gate)
          multiply_tiles_of_two(*expert.gate, expert.up, chunk, tokens, to, up);
        else
          multiply_tiles(expert.up, chunk, tokens, to);
        weigh_and_bias(panel, count, bias_at(expert.up_bias, b), up);
        if (expert.gate) weigh_and_bias(panel, count, bias_at(expert.gate_bias, b), gate);
        activate_chunk(expert, panel, chunk, expert.gate ? gate : up, up);
      }
      if (blocks.end == blocks_of(problem_.intermediate_size)) clear_padding(panel);
    }
  }

  // The activation of the sums, rounded to bf16, as the operand of down. Overwrites gate.
  void activate_chunk(const Expert& expert, const Panel& panel, Range blocks, float* gate,
                      const float* up) const {
    const std::int64_t count = (blocks.end - blocks.begin) * panel.tokens * 16;
    if (sigmoid_gate_) {
      gate_by_sigmoid(gate_constants_, count, gate, up);
    } else {
      for (std::int64_t i = 0; i < count; ++i)
        gate[i] = activate(problem_.activation.kind, gate[i], up[i], constants_);
    }
    std::uint16_t* to = activated_tiles(panel);
    for (std::int64_t b = blocks.begin; b < blocks.end; ++b, gate += panel.tokens * 16) {
      if (expert.activated_places.empty())
        tile_store_features(gate, panel.tokens, activated_row_, b * 16, to);
      else
        scatter_features(expert.activated_places, panel, b, gate);
    }
  }

  // Features of block b to their places among the columns of down.
  void scatter_features(const std::vector<std::int32_t>& places, const Panel& panel, std::int64_t b,
                        const float* values) const {
    std::uint16_t* to = activated_tiles(panel);
    for (std::int64_t t = 0; t < panel.tokens; ++t, values += 16)
      for (std::int64_t lane = 0; lane < 16; ++lane)
        to[tile_place(panel.tokens, activated_row_, t, places[at(b * 16 + lane)])] =
            f32_to_bf16(values[lane]);
  }

  // What of the last lines lies beyond the features.
  void clear_padding(const Panel& panel) const {
    std::uint16_t* to = activated_tiles(panel);
    for (std::int64_t k = problem_.intermediate_size; k < activated_row_; ++k)
      for (std::int64_t t = 0; t < panel.tokens; ++t)
        to[tile_place(panel.tokens, activated_row_, t, k)] = 0;
  }

  // Rows of down times all tokens of the expert.
  void fc2(std::size_t e, Range blocks) const {
    for (const Panel& panel : panels_of(e)) {
      float* out = ws_.outputs.data() + panel.first * output_row_;
      multiply_tiles(experts_[e].down, blocks,
                     {.x = activated_tiles(panel), .tokens = panel.tokens},
                     {.first = out + blocks.begin * 16, .token = output_row_, .block = 16});
      const std::vector<float>& bias = experts_[e].down_bias;
      if (bias.empty()) continue;
      for (std::int64_t t = 0; t < panel.tokens; ++t, out += output_row_)
        for (std::int64_t i = blocks.begin * 16; i < blocks.end * 16; ++i) out[i] += bias[at(i)];
    }
  }

  const float* output_of(std::int64_t position) const {
    return ws_.outputs.data() + position * output_row_;
  }
  void sum_blocks(int worker, int workers) const {
    combine(worker, workers, [this](std::int32_t position, std::int64_t block) {
      return output_of(position) + block * 16;
    });
  }

  // The routes of a token, whose rows are listed on the stack.
  static constexpr std::int64_t most_summed = 64;
  void sum_routes(std::int64_t token) const {
    std::array<const float*, most_summed> rows;
    std::array<float, most_summed> weights;
    std::int64_t count = 0;
    for (std::int64_t route = token * problem_.top_k; route < (token + 1) * problem_.top_k;
         ++route) {
      const std::int32_t position = ws_.positions[at(route)];
      if (position < 0) continue;
      rows[at(count)] = output_of(position);
      weights[at(count)] = problem_.router_weight_side == RouterWeightSide::output
                               ? args_.topk_weights[at(route)]
                               : 1.0F;
      ++count;
    }
    sum_rows_bf16(
        rows.data(), weights.data(), count, problem_.hidden_size,
        reinterpret_cast<std::uint8_t*>(args_.out.data()) + token * problem_.hidden_size * 2);
  }

  void raise_amax(const AmaxTable& table) const {
    raise_hidden_amax(table);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      float& entry = table.values[amax_index(table, e) + 1];
      const auto rows = ws_.activated_tiles.subspan(at(ws_.offsets[e] * activated_row_),
                                                    at(ws_.counts[e] * activated_row_));
      for (const std::uint16_t value : rows) entry = std::max(entry, std::abs(bf16_to_f32(value)));
    }
  }

  std::uint16_t* hidden_tiles(const Panel& panel) const {
    return ws_.hidden_tiles.data() + panel.first * hidden_row_;
  }
  std::uint16_t* activated_tiles(const Panel& panel) const {
    return ws_.activated_tiles.data() + panel.first * activated_row_;
  }

  BlockCost cost_;
  std::int64_t hidden_row_;
  std::int64_t activated_row_;
  std::int64_t output_row_;
  ActivationConstants gate_constants_;  // of gate_by_sigmoid
  bool sigmoid_gate_;
};

}  // namespace

void run_moe_tiles(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
                   const MoeWorkspace& workspace, const BlockCost& cost, Executor& executor) {
  TilePass(problem, experts, args, workspace, cost).run(executor);
}

}  // namespace fewbit::cpu
