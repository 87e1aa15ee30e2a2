// SPDX-License-Identifier: Apache-2.0
// One pass over a MoE layer, up to max_pass_tokens tokens: what it is whatever products take. Four
// steps, each split into fixed shares: gather the routes of each expert into panels, fc1 with the
// activation, fc2, weighted sum over the routes of each token.
#pragma once

#include <algorithm>
#include <atomic>

#include "backends/cpu/moe_workspace.hpp"
#include "backends/cpu/prepared.hpp"
#include "moe/activate.hpp"
#include "moe/routing.hpp"

namespace fewbit::cpu {

class MoePass {
 protected:
  // Elements below which waking threads costs more than it saves.
  static constexpr std::int64_t serial_elements = 1 << 15;

  MoePass(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
          const MoeWorkspace& workspace)
      : problem_(problem),
        experts_(experts),
        args_(args),
        ws_(workspace),
        conversions_(conversions_of(problem.activation_dtype)),
        constants_(activation_constants(problem.activation)) {}

  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  const std::uint8_t* hidden_of(std::int64_t position) const {
    const std::int64_t token = ws_.routes[at(position)] / problem_.top_k;
    return reinterpret_cast<const std::uint8_t*>(args_.hidden.bytes.data()) +
           token * problem_.hidden_size * conversions_.element_bytes;
  }

  // work(share, shares), on this thread alone when there is little of it.
  template <class Work>
  void split(Executor& executor, std::int64_t elements, const Work& work) {
    const int workers = elements < serial_elements ? 1 : executor.threads();
    if (workers == 1) return work(0, 1);
    parallel_for(executor, workers, [&](int worker) { work(worker, workers); });
  }

  // Sorts the routes by expert, cuts each expert's into panels and inverts the list.
  void sort(const PanelCut& cut) {
    kept_ = sort_routes(args_.topk_ids, args_.expert_map,
                        {.counts = ws_.counts, .offsets = ws_.offsets, .routes = ws_.routes});
    std::ranges::fill(ws_.positions, -1);
    std::int32_t panel = 0;
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      ws_.panel_begin[e] = panel;
      const std::int64_t count = ws_.counts[e];
      for (std::int64_t p = 0; p < cut.panels(count); ++p, ++panel) {
        const auto begin = static_cast<std::int32_t>(cut.begin(count, p));
        const auto end = static_cast<std::int32_t>(cut.begin(count, p + 1));
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

  // The part of a step that is not dealt out beforehand: who is done with its share takes pieces,
  // in whatever order, until there are none. Two threads that read the same number of bytes took
  // times that differed by a tenth (an EPYC of 2024).
  struct Rest {
    static constexpr std::int64_t part = 8;  // of the whole
    static constexpr int pieces = 4;         // a worker
    std::atomic<int> next = 0;
  };

  // Calls work(expert, blocks) for this worker's share of all row blocks of the experts that have
  // tokens, and pieces of the rest. cost(tokens): of a block with so many.
  template <class Cost, class Work>
  void for_blocks(std::int64_t blocks, int worker, int workers, Rest& rest, const Cost& cost_of,
                  const Work& work) const {
    const auto cost = [&](std::size_t e) {
      return ws_.counts[e] == 0 ? std::int64_t{0} : cost_of(std::int64_t{ws_.counts[e]});
    };
    std::int64_t total = 0;
    for (std::size_t e = 0; e < experts_.size(); ++e) total += blocks * cost(e);
    const std::int64_t shared = workers == 1 ? 0 : total / Rest::part;
    for_cost(blocks, share(total - shared, worker, workers), cost, work);
    const int pieces = workers * Rest::pieces;
    while (shared != 0) {
      const int piece = rest.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= pieces) return;
      const Range range = share(shared, piece, pieces);
      for_cost(blocks, {total - shared + range.begin, total - shared + range.end}, cost, work);
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

  // Sums the routes of each token in the order of its slots, in blocks of 16 features.
  // row(position, block): the 16 results of a route.
  template <class Row>
  void combine(int worker, int workers, const Row& row) const {
    const std::int64_t blocks = blocks_of(problem_.hidden_size);
    const Range mine = share(args_.tokens * blocks, worker, workers);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      combine_block(i / blocks, i % blocks, row);
    }
  }

  void raise_hidden_amax(const AmaxTable& table) const {
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      float& entry = table.values[amax_index(table, e)];
      for (std::int32_t i = ws_.offsets[e]; i < ws_.offsets[e + 1]; ++i)
        entry = std::max(entry, ws_.hidden_amax[at(i)]);
    }
  }
  // Of an expert's first entry; the second is that of the activated rows.
  static std::size_t amax_index(const AmaxTable& table, std::size_t expert) {
    return (at(table.layer * table.experts) + expert) * 2;
  }

  // The expert of a route in the sorted list.
  std::size_t expert_at(std::int64_t position) const {
    const auto next = std::upper_bound(ws_.offsets.begin(), ws_.offsets.end(), position);
    return static_cast<std::size_t>(next - ws_.offsets.begin()) - 1;
  }
  std::span<const Panel> panels_of(std::size_t e) const {
    return ws_.panels.subspan(at(ws_.panel_begin[e]),
                              at(ws_.panel_begin[e + 1] - ws_.panel_begin[e]));
  }
  // Calls work(expert, blocks) for those that begin in a range of the cost of all.
  template <class Cost, class Work>
  void for_cost(std::int64_t blocks, Range range, const Cost& cost, const Work& work) const {
    std::int64_t start = 0;
    for (std::size_t e = 0; e < experts_.size() && start < range.end; ++e) {
      if (cost(e) == 0) continue;
      const auto block_at = [&](std::int64_t bound) {
        return std::clamp<std::int64_t>((bound - start + cost(e) - 1) / cost(e), 0, blocks);
      };
      const Range of{range.begin <= start ? 0 : block_at(range.begin), block_at(range.end)};
      if (of.begin < of.end) work(e, of);
      start += blocks * cost(e);
    }
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
  std::int64_t kept_ = 0;  // routes to a local expert

 private:
  template <class Row>
  void combine_block(std::int64_t token, std::int64_t block, const Row& row) const {
    alignas(64) float sum[16] = {};
    for (std::int64_t route = token * problem_.top_k; route < (token + 1) * problem_.top_k;
         ++route) {
      const std::int32_t position = ws_.positions[at(route)];
      if (position < 0) continue;
      const float* values = row(position, block);
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
};

// Passes of each kind of operand.
void run_moe_panels(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
                    const MoeWorkspace& workspace, const PanelCut& cut, Executor& executor);
void run_moe_tiles(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
                   const MoeWorkspace& workspace, const BlockCost& cost, Executor& executor);

}  // namespace fewbit::cpu
