// SPDX-License-Identifier: Apache-2.0
// From packed shares, or from canonical weights, to a layer in device memory.
#include <fmt/format.h>

#include <cstring>

#include "backends/cuda_moe/expert_packer.hpp"
#include "backends/cuda_moe/expert_parts.hpp"
#include "backends/cuda_moe/prepared.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "canonical/column_order.hpp"
#include "canonical/gguf_exact.hpp"

namespace fewbit::cuda {
namespace {

// Fills a layer expert by expert, and then makes it.
class Filler {
 public:
  static Result<Filler> create(const MoeProblem& problem) {
    Filler filler(problem);
    FEWBIT_TRY(device::use(0));
    FEWBIT_TRY(filler.card_, device::info(0));
    FEWBIT_TRY(filler.scratch_, SharedScratch::get());
    const device::Stream& stream = filler.stream();
    const auto experts = static_cast<std::uint64_t>(problem.num_experts);
    const CellFormat format = format_of(problem);
    filler.bytes1_ = static_cast<std::uint64_t>(packed_bytes(format, half1(problem)));
    filler.bytes2_ = static_cast<std::uint64_t>(packed_bytes(format, half2(problem)));
    FEWBIT_TRY(filler.weights_.gate_up, device::Buffer::allocate(experts * filler.bytes1_, stream));
    FEWBIT_TRY(filler.weights_.down, device::Buffer::allocate(experts * filler.bytes2_, stream));
    return filler;
  }

  const device::Stream& stream() const { return scratch_->stream(); }
  std::byte* gate_up(std::int64_t expert) const {
    return weights_.gate_up.data() + static_cast<std::uint64_t>(expert) * bytes1_;
  }
  std::byte* down(std::int64_t expert) const {
    return weights_.down.data() + static_cast<std::uint64_t>(expert) * bytes2_;
  }

  // The small parts of the next expert.
  void add(const std::array<float, 3>& globals, std::span<const float> rows,
           std::span<const float> biases, std::span<const std::int32_t> order,
           const ScaleRange& range) {
    const float factor = f4_global_factor(format_of(problem_));
    globals1_.push_back(globals[0] * factor);
    globals1_.push_back(globals[1] * factor);
    globals2_.push_back(globals[2] * factor);
    add_halves(rows, rows1_, rows2_);
    add_halves(biases, bias1_, bias2_);
    order_.insert(order_.end(), order.begin(), order.end());
    grouped_ = grouped_ && grouped_takes(problem_, range);
  }

  Result<std::unique_ptr<PreparedMoe>> finish() {
    const auto streaming = plan_stream(format_of(problem_), shape_of(problem_, 1), card_of(card_));
    if (!grouped_ && !streaming) {
      return Error{ErrorCode::unsupported,
                   fmt::format("e8m0 scales outside {} to {}, and {}", grouped_least_e8m0,
                               grouped_most_e8m0, streaming.error().what),
                   problem_.where};
    }
    FEWBIT_TRY(weights_.globals1, device::copy_of(globals1_, stream()));
    FEWBIT_TRY(weights_.globals2, device::copy_of(globals2_, stream()));
    if (!rows1_.empty()) {
      FEWBIT_TRY(weights_.rows1, device::copy_of(rows1_, stream()));
      FEWBIT_TRY(weights_.rows2, device::copy_of(rows2_, stream()));
    }
    if (!bias1_.empty()) {
      FEWBIT_TRY(weights_.bias1, device::copy_of(bias1_, stream()));
      FEWBIT_TRY(weights_.bias2, device::copy_of(bias2_, stream()));
    }
    if (!order_.empty()) {
      FEWBIT_TRY(weights_.order, device::copy_of(order_, stream()));
    }
    FEWBIT_TRY(stream().synchronize());
    PreparedInfo info{.backend = "cuda_moe",
                      .layout = layout_name(format_of(problem_)),
                      .owned_bytes = weights_.gate_up.size() + weights_.down.size()};
    auto moe = std::make_unique<Moe>(problem_, card_, scratch_, std::move(weights_), grouped_,
                                     std::move(info));
    FEWBIT_TRY(moe->reserve_host_calls());
    return std::unique_ptr<PreparedMoe>(std::move(moe));
  }

 private:
  explicit Filler(const MoeProblem& problem) : problem_(problem) {}
  // What rows of fc1 and of fc2 have, behind those of the experts before.
  void add_halves(std::span<const float> values, std::vector<float>& first,
                  std::vector<float>& second) const {
    if (values.empty()) return;
    const auto of_first = values.first(static_cast<std::size_t>(2 * half1(problem_).n));
    first.insert(first.end(), of_first.begin(), of_first.end());
    second.insert(second.end(), values.begin() + std::ssize(of_first), values.end());
  }

  MoeProblem problem_;
  DeviceInfo card_;
  std::shared_ptr<SharedScratch> scratch_;
  LayerWeights weights_;
  std::uint64_t bytes1_ = 0;
  std::uint64_t bytes2_ = 0;
  std::vector<std::int32_t> order_;
  std::vector<float> globals1_, globals2_, rows1_, rows2_, bias1_, bias2_;
  bool grouped_ = true;
};

// From a prepared file, which may be damaged. Empty without act-order.
template <class Shares>
Result<std::vector<std::int32_t>> stored_order(const MoeProblem& problem, const MoePlan& plan,
                                               const Shares& shares) {
  std::vector<std::int32_t> order;
  if (!is_ordered(problem.gate_up)) return order;
  order.resize(static_cast<std::size_t>(problem.hidden_size));
  std::memcpy(order.data(), shares[static_cast<std::size_t>(plan.index("hidden_order"))].data(),
              order.size() * sizeof(std::int32_t));
  FEWBIT_TRY(check_order(order, "hidden_order", problem.where));
  return order;
}

}  // namespace

Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& plan,
                                              PreparedMemory memory) {
  FEWBIT_TRY(check_plan(problem, plan));
  FEWBIT_TRY(check_memory(plan, memory, problem.where));
  FEWBIT_TRY(Filler filler, Filler::create(problem));
  const auto count = static_cast<std::size_t>(bias_count(problem));
  std::vector<float> biases(problem.biases ? count : std::size_t{0});
  std::vector<float> rows(has_row_scales(problem) ? count : std::size_t{0});
  for (std::int64_t e = 0; e < problem.num_experts; ++e) {
    const auto& shares = memory.experts[static_cast<std::size_t>(e)];
    const auto share = [&](const char* name) {
      return shares[static_cast<std::size_t>(plan.index(name))];
    };
    FEWBIT_TRY(device::copy_to_device(filler.gate_up(e), share("gate_up"), filler.stream()));
    FEWBIT_TRY(device::copy_to_device(filler.down(e), share("down"), filler.stream()));
    std::array<float, 3> globals{};
    std::memcpy(globals.data(), share("global_scales").data(), sizeof(globals));
    if (problem.biases) {
      std::memcpy(biases.data(), share("biases").data(), biases.size() * sizeof(float));
    }
    if (!rows.empty()) {
      std::memcpy(rows.data(), share("row_scales").data(), rows.size() * sizeof(float));
    }
    ScaleRange range;
    if (!format_of(problem).scaled_sums()) {
      range = {.least = static_cast<std::uint8_t>(share("scale_range")[0]),
               .most = static_cast<std::uint8_t>(share("scale_range")[1])};
    }
    FEWBIT_TRY(const std::vector<std::int32_t> order, stored_order(problem, plan, shares));
    filler.add(globals, rows, biases, order, range);
  }
  return filler.finish();
}

Result<std::unique_ptr<PreparedMoe>> prepare_on_device(const MoeProblem& problem,
                                                       const MoeWeights& weights) {
  FEWBIT_TRY(Filler filler, Filler::create(problem));
  ExpertPacker packer(problem, filler.stream());
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    FEWBIT_TRY(const ExpertWeights expert, gguf_exact(weights.experts[e]));
    FEWBIT_TRY(packer.pack(expert, 0, filler.gate_up(static_cast<std::int64_t>(e))));
    FEWBIT_TRY(packer.pack(expert, 1, filler.down(static_cast<std::int64_t>(e))));
    std::vector<float> biases;
    if (problem.biases) {
      FEWBIT_TRY(biases, biases_of(problem, expert));
    }
    std::vector<float> rows;
    if (has_row_scales(problem)) {
      FEWBIT_TRY(rows, row_scales_of(expert));
    }
    FEWBIT_TRY(const auto globals, globals_of(expert));
    std::vector<std::int32_t> order;
    if (is_ordered(problem.gate_up)) {
      FEWBIT_TRY(order, hidden_order_of(problem, expert));
    }
    filler.add(globals, rows, biases, order,
               format_of(problem).scaled_sums() ? ScaleRange{} : scale_range(expert));
  }
  FEWBIT_TRY(packer.check());
  return filler.finish();
}

}  // namespace fewbit::cuda
