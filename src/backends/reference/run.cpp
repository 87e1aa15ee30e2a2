// SPDX-License-Identifier: Apache-2.0
// Sums in double; the activated row is rounded once to the activation dtype, the output once more.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "backends/reference/prepared.hpp"
#include "backends/reference/rounding.hpp"
#include "core/convert.hpp"
#include "moe/activate.hpp"
#include "moe/routing.hpp"

namespace fewbit::reference {
namespace {

// One call of ReferenceMoe::run; tasks share nothing that they write.
class MoeRun {
 public:
  MoeRun(const MoeProblem& problem, std::span<const Expert> experts, const MoeArgs& args,
         const MoeScratch& scratch)
      : problem_(problem),
        experts_(experts),
        args_(args),
        scratch_(scratch),
        constants_(activation_constants(problem.activation)),
        hidden_size_(static_cast<std::size_t>(problem.hidden_size)),
        width_(static_cast<std::size_t>(problem.intermediate_size)),
        top_k_(static_cast<std::size_t>(problem.top_k)) {}

  // Rows of gate and up, and with them columns of `activated`.
  void fc1(int task) {
    const Range range = rows_of_task(problem_.intermediate_size, task);
    const auto gate_row = scratch_row(task, 0, hidden_size_);
    const auto up_row = scratch_row(task, 1, hidden_size_);
    for (std::size_t e = 0; e < experts_.size(); ++e) {
      const Expert& expert = experts_[e];
      const auto routes = routes_of(e);
      if (routes.empty()) continue;
      for (std::int64_t row = range.begin; row < range.end; ++row) {
        if (expert.gate) read(*expert.gate, row, gate_row);
        read(expert.up, row, up_row);
        for (const std::int32_t r : routes) {
          const auto route = static_cast<std::size_t>(r);
          const auto x = scratch_.hidden.subspan(route / top_k_ * hidden_size_, hidden_size_);
          const double weight = weight_of(route, RouterWeightSide::input);
          const double gate = expert.gate ? dot(x, gate_row) * expert.gate->global() * weight +
                                                bias_of(expert.gate_bias, row)
                                          : 0.0;
          const double up =
              dot(x, up_row) * expert.up.global() * weight + bias_of(expert.up_bias, row);
          scratch_.activated[route * width_ + static_cast<std::size_t>(row)] = round_to(
              problem_.activation_dtype, activate(problem_.activation.kind, gate, up, constants_));
        }
      }
    }
  }

  // Rows of down, and with them columns of the output.
  void fc2(int task) {
    const Range range = rows_of_task(problem_.hidden_size, task);
    const auto down_row = scratch_row(task, 0, width_);
    const std::size_t routes = args_.topk_ids.size();
    const auto sums = scratch_.sums.subspan(static_cast<std::size_t>(task) * routes, routes);
    std::ranges::fill(sums, 0.0);  // dropped routes stay at zero
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (std::size_t e = 0; e < experts_.size(); ++e) {
        if (routes_of(e).empty()) continue;
        read(experts_[e].down, row, down_row);
        for (const std::int32_t r : routes_of(e)) {
          const auto route = static_cast<std::size_t>(r);
          const double product = dot(scratch_.activated.subspan(route * width_, width_), down_row) *
                                 experts_[e].down.global();
          sums[route] = (product + bias_of(experts_[e].down_bias, row)) *
                        weight_of(route, RouterWeightSide::output);
        }
      }
      store_column(row, sums);
    }
  }

  void raise_amax(std::size_t expert) {
    const AmaxTable& table = *args_.amax;
    const auto entry = static_cast<std::size_t>(table.layer * table.experts) + expert;
    float& input = table.values[entry * 2];
    float& activated = table.values[entry * 2 + 1];
    for (const std::int32_t r : routes_of(expert)) {
      const auto route = static_cast<std::size_t>(r);
      raise(input, scratch_.hidden.subspan(route / top_k_ * hidden_size_, hidden_size_));
      raise(activated, scratch_.activated.subspan(route * width_, width_));
    }
  }

  bool failed() const { return failed_.load(std::memory_order_relaxed); }

 private:
  std::span<const std::int32_t> routes_of(std::size_t expert) const {
    return scratch_.routes.subspan(static_cast<std::size_t>(scratch_.offsets[expert]),
                                   static_cast<std::size_t>(scratch_.counts[expert]));
  }

  std::span<float> scratch_row(int task, std::size_t which, std::size_t size) const {
    const std::size_t stride = std::max(hidden_size_, width_);
    return scratch_.rows.subspan((static_cast<std::size_t>(task) * 2 + which) * stride, size);
  }

  void read(const RowReader& matrix, std::int64_t row, std::span<float> out) {
    if (!matrix.read(row, out)) failed_.store(true, std::memory_order_relaxed);
  }

  double weight_of(std::size_t route, RouterWeightSide side) const {
    return problem_.router_weight_side == side ? double{args_.topk_weights[route]} : 1.0;
  }

  // One output column: the routes of a token added in order.
  void store_column(std::int64_t column, std::span<const double> sums) const {
    for (std::int64_t token = 0; token < args_.tokens; ++token) {
      double sum = 0;
      for (std::size_t k = 0; k < top_k_; ++k) {
        sum += sums[static_cast<std::size_t>(token) * top_k_ + k];
      }
      store_rounded(problem_.activation_dtype, args_.out.data(),
                    token * problem_.hidden_size + column, sum);
    }
  }

  static void raise(float& entry, std::span<const float> values) {
    for (const float x : values) entry = std::max(entry, std::abs(x));
  }

  const MoeProblem& problem_;
  std::span<const Expert> experts_;
  const MoeArgs& args_;
  const MoeScratch& scratch_;
  ActivationConstants constants_;
  std::size_t hidden_size_;
  std::size_t width_;
  std::size_t top_k_;
  std::atomic<bool> failed_ = false;
};

}  // namespace

Result<void> ReferenceMoe::run(const MoeArgs& args, Executor& executor) const {
  Carver carver(args.workspace);
  const MoeScratch scratch = carve(problem_, args.tokens, carver);
  FEWBIT_TRY(convert_to_f32(args.hidden.dtype, args.hidden.bytes, scratch.hidden));
  sort_routes(args.topk_ids, args.expert_map, {scratch.counts, scratch.offsets, scratch.routes});
  MoeRun run(problem_, experts_, args, scratch);
  parallel_for(executor, tasks, [&](int task) { run.fc1(task); });
  parallel_for(executor, tasks, [&](int task) { run.fc2(task); });
  if (run.failed()) return unreadable_row(problem_.where);
  if (args.amax) {
    parallel_for(executor, static_cast<int>(experts_.size()),
                 [&](int expert) { run.raise_amax(static_cast<std::size_t>(expert)); });
  }
  return {};
}

}  // namespace fewbit::reference
