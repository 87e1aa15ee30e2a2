// SPDX-License-Identifier: Apache-2.0
// A pass over a MoE layer with f32 panels of tokens.
#include "backends/cpu/moe_pass.hpp"

namespace fewbit::cpu {
namespace {

class PanelPass : MoePass {
 public:
  PanelPass(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
            const MoeWorkspace& workspace, const PanelCut& cut)
      : MoePass(problem, experts, args, workspace),
        cut_(cut),
        hidden_row_(blocks_of(problem.hidden_size) * 16),
        activated_row_(blocks_of(problem.intermediate_size) * 16) {}

  void run(Executor& executor) {
    sort(cut_);
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
      combine(i, n, [this](std::int32_t position, std::int64_t block) {
        const Panel& panel = ws_.panels[at(ws_.panel_of[at(position)])];
        return panel_data(ws_.hidden, panel, hidden_row_) +
               (block * panel.tokens + position - panel.first) * 16;
      });
    });
  }

 private:
  // A block costs as much as it has tokens, and reading it as much as two of them.
  static std::int64_t block_cost(std::int64_t tokens) { return std::max<std::int64_t>(2, tokens); }

  // Copies hidden rows into the panels of the experts that they go to.
  void gather(int worker, int workers) const {
    const Range positions = share(kept_, worker, workers);
    for (std::int64_t i = positions.begin; i < positions.end; ++i) {
      const Panel& panel = ws_.panels[at(ws_.panel_of[at(i)])];
      const std::uint8_t* row = hidden_of(i);
      float* to = panel_data(ws_.hidden, panel, hidden_row_) + (i - panel.first) * 16;
      const auto& order = experts_[expert_at(i)].hidden_order;
      ws_.hidden_amax[at(i)] = order.empty()
                                   ? conversions_.load(row, problem_.hidden_size, panel.tokens, to)
                                   : conversions_.load_ordered(
                                         row, order.data(), problem_.hidden_size, panel.tokens, to);
    }
  }

  std::int64_t chunk_of(std::size_t e) const {
    return waiting_blocks(std::min<std::int64_t>(ws_.counts[e], cut_.most));
  }

  // Rows of gate and up times all tokens of the expert; weights of a chunk are reused over panels.
  void fc1(std::size_t e, Range blocks) const {
    // Sums that wait for the activation.
    alignas(64) float gate[panel_rows * 16];
    alignas(64) float up[panel_rows * 16];
    const std::int64_t chunk_blocks = chunk_of(e);
    const Expert& expert = experts_[e];
    for (std::int64_t b = blocks.begin; b < blocks.end; b += chunk_blocks) {
      const std::int64_t count = std::min(chunk_blocks, blocks.end - b);
      for (const Panel& panel : panels_of(e)) {
        const float* x = panel_data(ws_.hidden, panel, hidden_row_);
        if (expert.gate) expert.gate->multiply(b, count, x, panel.tokens, gate);
        expert.up.multiply(b, count, x, panel.tokens, up);
        weigh_and_bias(panel, count, bias_at(expert.up_bias, b), up);
        if (expert.gate) weigh_and_bias(panel, count, bias_at(expert.gate_bias, b), gate);
        activate_panel(expert, panel, {b, b + count}, expert.gate ? gate : up, up);
      }
    }
  }

  // The activation of the sums, rounded to the activation type, into the panel that down reads.
  // Overwrites gate where the features change their places.
  void activate_panel(const Expert& expert, const Panel& panel, Range blocks, float* gate,
                      const float* up) const {
    float* row = panel_data(ws_.activated, panel, activated_row_);
    const std::int64_t first = blocks.begin * panel.tokens * 16;
    const std::int64_t count = (blocks.end - blocks.begin) * panel.tokens * 16;
    const std::vector<std::int32_t>& places = expert.activated_places;
    float* out = places.empty() ? row + first : gate;
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = activate(problem_.activation.kind, gate[i], up[i], constants_);
    conversions_.round(out, count);
    if (places.empty()) return;
    for (std::int64_t b = blocks.begin; b < blocks.end; ++b) {
      for (std::int64_t t = 0; t < panel.tokens; ++t, out += 16) {
        for (std::int64_t lane = 0; lane < 16; ++lane) {
          const std::int64_t to = places[at(b * 16 + lane)];
          row[(to / 16 * panel.tokens + t) * 16 + to % 16] = out[lane];
        }
      }
    }
  }

  // Rows of down times all tokens of the expert, into the memory of the hidden panels.
  void fc2(std::size_t e, Range blocks) const {
    const std::int64_t step = panels_of(e).size() == 1 ? blocks.end - blocks.begin : chunk_of(e);
    for (std::int64_t b = blocks.begin; b < blocks.end; b += step) {
      const std::int64_t count = std::min(step, blocks.end - b);
      for (const Panel& panel : panels_of(e)) {
        float* out = panel_data(ws_.hidden, panel, hidden_row_) + b * panel.tokens * 16;
        experts_[e].down.multiply(b, count, panel_data(ws_.activated, panel, activated_row_),
                                  panel.tokens, out);
        add_bias(bias_at(experts_[e].down_bias, b), count, panel.tokens, out);
      }
    }
  }

  static void add_bias(const float* bias, std::int64_t blocks, std::int64_t tokens, float* sums) {
    if (bias == nullptr) return;
    for (std::int64_t b = 0; b < blocks; ++b, bias += 16)
      for (std::int64_t t = 0; t < tokens; ++t, sums += 16)
        for (int lane = 0; lane < 16; ++lane) sums[lane] += bias[lane];
  }

  void raise_amax(const AmaxTable& table) const {
    raise_hidden_amax(table);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      float& entry = table.values[amax_index(table, e) + 1];
      const auto rows = ws_.activated.subspan(at(ws_.offsets[e] * activated_row_),
                                              at(ws_.counts[e] * activated_row_));
      for (const float value : rows) entry = std::max(entry, std::abs(value));
    }
  }

  static float* panel_data(std::span<float> rows, const Panel& panel, std::int64_t row) {
    return rows.data() + panel.first * row;
  }

  PanelCut cut_;
  std::int64_t hidden_row_;
  std::int64_t activated_row_;
};

}  // namespace

void run_moe_panels(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
                    const MoeWorkspace& workspace, const PanelCut& cut, Executor& executor) {
  PanelPass(problem, experts, args, workspace, cut).run(executor);
}

}  // namespace fewbit::cpu
