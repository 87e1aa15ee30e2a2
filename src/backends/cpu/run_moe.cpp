// SPDX-License-Identifier: Apache-2.0
// One MoE layer in four steps, each split into fixed shares: gather the routes of each expert into
// panels, fc1 with the activation, fc2, weighted sum over the routes of each token.
#include <algorithm>

#include "backends/cpu/moe_workspace.hpp"
#include "backends/cpu/prepared.hpp"
#include "moe/activate.hpp"
#include "moe/routing.hpp"

namespace fewbit::cpu {
namespace {

// Blocks of 16 rows of gate and up whose sums wait on the stack for the activation.
constexpr std::int64_t chunk_blocks = 8;
// Elements below which waking threads costs more than it saves.
constexpr std::int64_t serial_elements = 1 << 15;

// One pass: up to max_pass_tokens tokens.
class Pass {
 public:
  Pass(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
       const MoeWorkspace& workspace)
      : problem_(problem),
        experts_(experts),
        args_(args),
        ws_(workspace),
        conversions_(conversions_of(problem.activation_dtype)),
        constants_(activation_constants(problem.activation)),
        hidden_row_(blocks_of(problem.hidden_size) * 16),
        activated_row_(blocks_of(problem.intermediate_size) * 16) {}

  void run(Executor& executor) {
    sort();
    split(executor, kept_ * problem_.hidden_size, [this](int i, int n) { gather(i, n); });
    split(executor, serial_elements, [this](int i, int n) {
      for_blocks(blocks_of(problem_.intermediate_size), i, n,
                 [this](std::size_t expert, Range blocks) { fc1(expert, blocks); });
    });
    if (args_.amax) raise_amax(*args_.amax);
    split(executor, serial_elements, [this](int i, int n) {
      for_blocks(blocks_of(problem_.hidden_size), i, n,
                 [this](std::size_t expert, Range blocks) { fc2(expert, blocks); });
    });
    split(executor, kept_ * problem_.hidden_size, [this](int i, int n) { combine(i, n); });
  }

 private:
  // work(share, shares), on this thread alone when there is little of it.
  template <class Work>
  void split(Executor& executor, std::int64_t elements, const Work& work) {
    const int workers = elements < serial_elements ? 1 : executor.threads();
    if (workers == 1) return work(0, 1);
    parallel_for(executor, workers, [&](int worker) { work(worker, workers); });
  }

  // Sorts the routes by expert, cuts each expert's into panels and inverts the list.
  void sort() {
    kept_ = sort_routes(args_.topk_ids, args_.expert_map,
                        {.counts = ws_.counts, .offsets = ws_.offsets, .routes = ws_.routes});
    std::ranges::fill(ws_.positions, -1);
    std::int32_t panel = 0;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      ws_.panel_begin[e] = panel;
      const std::int64_t count = ws_.counts[e];
      for (std::int64_t p = 0; p < panels_for(count); ++p, ++panel) {
        const auto begin = static_cast<std::int32_t>(panel_begin(count, p));
        const auto end = static_cast<std::int32_t>(panel_begin(count, p + 1));
        const std::int32_t first = ws_.offsets[e] + begin;
        ws_.panels[at(panel)] = {.first = first, .tokens = end - begin};
        for (std::int32_t i = first; i < first + end - begin; ++i) {
          ws_.panel_of[at(i)] = panel;
          ws_.positions[at(ws_.routes[at(i)])] = i;
        }
      }
    }
    ws_.panel_begin[experts_.size()] = panel;
  }

  // Copies hidden rows into the panels of the experts that they go to.
  void gather(int worker, int workers) const {
    const auto* hidden = reinterpret_cast<const std::uint8_t*>(args_.hidden.bytes.data());
    const Range positions = share(kept_, worker, workers);
    for (std::int64_t i = positions.begin; i < positions.end; ++i) {
      const Panel& panel = ws_.panels[at(ws_.panel_of[at(i)])];
      const std::int64_t token = ws_.routes[at(i)] / problem_.top_k;
      const std::uint8_t* row = hidden + token * problem_.hidden_size * conversions_.element_bytes;
      float* to = panel_data(ws_.hidden, panel, hidden_row_) + (i - panel.first) * 16;
      const auto& order = experts_[expert_at(i)].hidden_order;
      ws_.hidden_amax[at(i)] = order.empty()
                                   ? conversions_.load(row, problem_.hidden_size, panel.tokens, to)
                                   : conversions_.load_ordered(
                                         row, order.data(), problem_.hidden_size, panel.tokens, to);
    }
  }

  // Calls work(expert, blocks) for this worker's share of all row blocks of the experts that have
  // tokens. A block costs as much as it has tokens, and reading it as much as two of them.
  template <class Work>
  void for_blocks(std::int64_t blocks, int worker, int workers, const Work& work) const {
    const auto cost = [this](std::size_t e) {
      return ws_.counts[e] == 0 ? 0 : std::max<std::int64_t>(2, ws_.counts[e]);
    };
    std::int64_t total = 0;
    for (std::size_t e = 0; e < experts_.size(); ++e) total += blocks * cost(e);
    const Range mine = share(total, worker, workers);
    std::int64_t start = 0;
    for (std::size_t e = 0; e < experts_.size(); start += blocks * cost(e), ++e) {
      if (cost(e) == 0) continue;
      const auto block_at = [&](std::int64_t bound) {
        return std::clamp<std::int64_t>((bound - start + cost(e) - 1) / cost(e), 0, blocks);
      };
      const Range range{mine.begin <= start ? 0 : block_at(mine.begin),
                        mine.end <= start ? 0 : block_at(mine.end)};
      if (range.begin < range.end) work(e, range);
    }
  }

  // Rows of gate and up times all tokens of the expert; weights of a chunk are reused over panels.
  void fc1(std::size_t e, Range blocks) const {
    alignas(64) float gate[chunk_blocks * max_panel_tokens * 16];
    alignas(64) float up[chunk_blocks * max_panel_tokens * 16];
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

  static const float* bias_at(const std::vector<float>& bias, std::int64_t block) {
    return bias.empty() ? nullptr : bias.data() + block * 16;
  }

  // sums = sums * router weight, where it belongs to the input, + bias of their rows.
  void weigh_and_bias(const Panel& panel, std::int64_t blocks, const float* bias,
                      float* sums) const {
    const bool weighted = problem_.router_weight_side == RouterWeightSide::input;
    if (!weighted && bias == nullptr) return;
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int32_t t = 0; t < panel.tokens; ++t, sums += 16) {
        const float weight = input_weight(panel.first + t);
        for (int lane = 0; lane < 16; ++lane) {
          sums[lane] *= weight;
          if (bias != nullptr) sums[lane] += bias[b * 16 + lane];
        }
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
    const std::int64_t step = panels_of(e).size() == 1 ? blocks.end - blocks.begin : chunk_blocks;
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

  // Sums the routes of each token in the order of its slots, in blocks of 16 features.
  void combine(int worker, int workers) const {
    const std::int64_t blocks = hidden_row_ / 16;
    const Range mine = share(args_.tokens * blocks, worker, workers);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) combine_block(i / blocks, i % blocks);
  }

  void combine_block(std::int64_t token, std::int64_t block) const {
    alignas(64) float sum[16] = {};
    for (std::int64_t route = token * problem_.top_k; route < (token + 1) * problem_.top_k;
         ++route) {
      const std::int32_t position = ws_.positions[at(route)];
      if (position < 0) continue;
      const Panel& panel = ws_.panels[at(ws_.panel_of[at(position)])];
      const float* values = panel_data(ws_.hidden, panel, hidden_row_) +
                            (block * panel.tokens + position - panel.first) * 16;
      const float weight = problem_.router_weight_side == RouterWeightSide::output
                               ? args_.topk_weights[at(route)]
                               : 1.0F;
      for (int lane = 0; lane < 16; ++lane) sum[lane] += weight * values[lane];
    }
    const std::int64_t first = token * problem_.hidden_size + block * 16;
    conversions_.store(
        sum, std::min<std::int64_t>(16, problem_.hidden_size - block * 16), 1,
        reinterpret_cast<std::uint8_t*>(args_.out.data()) + first * conversions_.element_bytes);
  }

  void raise_amax(const AmaxTable& table) const {
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      float* entry = &table.values[(at(table.layer * table.experts) + e) * 2];
      for (std::int32_t i = ws_.offsets[e]; i < ws_.offsets[e + 1]; ++i)
        entry[0] = std::max(entry[0], ws_.hidden_amax[at(i)]);
      const auto rows = ws_.activated.subspan(at(ws_.offsets[e] * activated_row_),
                                              at(ws_.counts[e] * activated_row_));
      for (const float value : rows) entry[1] = std::max(entry[1], std::abs(value));
    }
  }

  // The expert of a route in the sorted list.
  std::size_t expert_at(std::int64_t position) const {
    const auto next = std::upper_bound(ws_.offsets.begin(), ws_.offsets.end(), position);
    return static_cast<std::size_t>(next - ws_.offsets.begin()) - 1;
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::span<const Panel> panels_of(std::size_t e) const {
    return ws_.panels.subspan(at(ws_.panel_begin[e]),
                              at(ws_.panel_begin[e + 1] - ws_.panel_begin[e]));
  }
  static float* panel_data(std::span<float> rows, const Panel& panel, std::int64_t row) {
    return rows.data() + panel.first * row;
  }
  float input_weight(std::int64_t position) const {
    return problem_.router_weight_side == RouterWeightSide::input
               ? args_.topk_weights[at(ws_.routes[at(position)])]
               : 1.0F;
  }

  const MoeProblem& problem_;
  std::span<const Expert> experts_;
  const MoeArgs& args_;
  const MoeWorkspace& ws_;
  const PanelConversions& conversions_;
  ActivationConstants constants_;
  std::int64_t hidden_row_;
  std::int64_t activated_row_;
  std::int64_t kept_ = 0;  // routes to a local expert
};

}  // namespace

Result<std::uint64_t> Moe::workspace_bytes(std::int64_t tokens) const {
  return moe_workspace_bytes(problem_, std::min(tokens, max_pass_tokens));
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
    const MoeWorkspace workspace = moe_workspace(problem_, part.tokens, args.workspace);
    Pass(problem_, experts_, part, workspace).run(executor);
  }
  return {};
}

}  // namespace fewbit::cpu
