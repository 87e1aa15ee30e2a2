// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <system_error>

#include "bench/bench_device.hpp"
#include "bench/bench_linear.hpp"
#include "bench/limit_track.hpp"
#include "bench/linear_shapes.hpp"
#include "bench/measure.hpp"
#include "bench/random_layer.hpp"
#include "bench/time_calls.hpp"
#include "checkpoint/file_kind.hpp"
#include "core/aligned_buffer.hpp"
#include "core/counted.hpp"
#include "select/problem_list.hpp"

namespace fewbit::bench {
namespace {

MoeProblem problem_of(const LayerShape& shape, const MoeWeights& weights,
                      const LayerBenchOptions& options) {
  MoeProblem problem;
  problem.hidden_size = shape.hidden_size;
  problem.intermediate_size = shape.intermediate_size;
  problem.num_experts = shape.num_experts;
  problem.top_k = shape.top_k;
  problem.activation = shape.activation;
  problem.gate_up = weights.experts.front().up.scheme;
  problem.down = weights.experts.front().down.scheme;
  problem.biases = shape.biases;
  problem.activation_dtype = options.activation_dtype;
  problem.max_tokens = *std::ranges::max_element(options.tokens);
  problem.where = shape.name;
  return problem;
}

// Layers to rotate through, and random calls on them.
class Bench {
 public:
  Bench(const LayerShape& shape, Executor& executor) : shape_(shape), executor_(executor) {}

  Result<LayerBench> run(const DeviceInfo& device, const LayerBenchOptions& options) {
    LayerBench bench;
    bench.shape = shape_;
    FEWBIT_TRY(prepare(device, options, bench));
    const bool on_card = device.kind == DeviceKind::cuda;
    FEWBIT_TRY(time_beside_limits(device, options, executor_, bench, [&](std::int64_t tokens) {
      return on_card ? time_on_card(tokens, options) : time(tokens, options);
    }));
    return bench;
  }

 private:
  static bool stops(const LayerBenchOptions& options) { return options.stop && options.stop(); }

  Result<void> prepare(const DeviceInfo& device, const LayerBenchOptions& options,
                       LayerBench& bench) {
    FEWBIT_TRY(const MoeWeights weights, random_weights(shape_, random_));
    const MoeProblem problem = problem_of(shape_, weights, options);
    FEWBIT_TRY(const Selection selection,
               select_backend(problem, device, {.backend = options.backend}));
    bench.backend = selection.chosen;
    std::uint64_t bytes = 0;
    do {
      const auto start = Clock::now();
      FEWBIT_TRY(MoeLayer layer, MoeLayer::prepare(selection, problem, weights, device, executor_));
      bench.prepare_seconds = seconds_since(start);
      bench.prepared = layer.info();
      if (options.router) FEWBIT_TRY(layer.add_router({router(), {}, {}}));
      bytes += bench.prepared.owned_bytes;
      layers_.push_back(std::move(layer));
    } while (bytes < options.resident_bytes && bench.prepared.owned_bytes > 0 && !stops(options));
    bench.copies = static_cast<int>(layers_.size());
    weight_bytes_ =
        static_cast<double>(bench.weight_bytes()) / static_cast<double>(shape_.num_experts);
    return {};
  }

  // top_k different experts for each token.
  std::vector<std::int32_t> random_ids(std::int64_t tokens) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(shape_.num_experts));
    std::vector<std::int32_t> ids;
    for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<std::int32_t>(e);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::size_t slot = 0; slot < static_cast<std::size_t>(shape_.top_k); ++slot) {
        std::swap(order[slot], order[slot + random_() % (order.size() - slot)]);
        ids.push_back(order[slot]);
      }
    }
    return ids;
  }

  static double distinct(std::vector<std::int32_t> ids) {
    std::ranges::sort(ids);
    return static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
  }

  RouterParams router() const { return {.top_k = shape_.top_k}; }

  // Logits, and the experts that the router chooses from them.
  Result<std::vector<std::int32_t>> random_logits(std::int64_t tokens, std::vector<float>& logits) {
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < tokens * shape_.num_experts; ++i) {
      logits.push_back(normal(random_));
    }
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * shape_.top_k));
    std::vector<float> weights(ids.size());
    FEWBIT_TRY(route(router(), tokens, shape_.num_experts, logits, {}, ids, weights));
    return ids;
  }

  Result<LayerTiming> time_on_card(std::int64_t tokens, const LayerBenchOptions& options) {
    FEWBIT_TRY(const Tensor hidden,
               random_tensor(DType::bf16, {tokens, shape_.hidden_size}, Fill::numbers, random_));
    const std::vector<float> weights(static_cast<std::size_t>(tokens * shape_.top_k),
                                     1.0F / static_cast<float>(shape_.top_k));
    DeviceCalls calls{.layers = layers_,
                      .tokens = tokens,
                      .hidden = hidden.view,
                      .ids = {},
                      .logits = {},
                      .router_weights = weights};
    double experts = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (options.router) {
        FEWBIT_TRY(std::vector<std::int32_t> ids,
                   random_logits(tokens, calls.logits.emplace_back()));
        calls.ids.push_back(std::move(ids));
      } else {
        calls.ids.push_back(random_ids(tokens));
      }
      experts += distinct(calls.ids.back());
    }
    FEWBIT_TRY(const DeviceTime time, time_on_device(calls, options.seconds, executor_));
    LayerTiming timing{.tokens = tokens, .seconds = time.seconds, .calls = time.calls};
    timing.weight_bytes = weight_bytes_ * experts / static_cast<double>(layers_.size());
    timing.flops = flops_of(tokens);
    return timing;
  }

  double flops_of(std::int64_t tokens) const {
    return 2.0 * 3.0 * static_cast<double>(tokens * shape_.top_k) *
           static_cast<double>(shape_.hidden_size * shape_.intermediate_size);
  }

  Result<LayerTiming> time(std::int64_t tokens, const LayerBenchOptions& options) {
    const DType dtype = layers_.front().problem().activation_dtype;
    FEWBIT_TRY(const Tensor hidden,
               random_tensor(dtype, {tokens, shape_.hidden_size}, Fill::numbers, random_));
    std::vector<std::byte> out(hidden.view.bytes.size());
    FEWBIT_TRY(const std::uint64_t workspace_bytes, layers_.front().workspace_bytes(tokens));
    FEWBIT_TRY(AlignedBuffer workspace, AlignedBuffer::allocate(workspace_bytes));
    const std::vector<float> router_weights(static_cast<std::size_t>(tokens * shape_.top_k),
                                            1.0F / static_cast<float>(shape_.top_k));
    double experts = 0;
    std::int64_t all_calls = 0;
    const auto call = [&]() -> Result<double> {
      const std::vector<std::int32_t> ids = random_ids(tokens);
      experts += distinct(ids);
      ++all_calls;
      MoeArgs args;
      args.tokens = tokens;
      args.hidden = hidden.view;
      args.topk_ids = ids;
      args.topk_weights = router_weights;
      args.out = out;
      args.workspace = workspace.span();
      const MoeLayer& layer = layers_[next_++ % layers_.size()];
      const auto start = Clock::now();
      FEWBIT_TRY(layer.run(args, executor_));
      return seconds_since(start);
    };
    FEWBIT_TRY(const CallTimes times, time_calls(options, warm_up_, call));
    LayerTiming timing{.tokens = tokens, .seconds = times.seconds, .calls = times.calls};
    if (times.calls == 0) return timing;  // stopped
    timing.weight_bytes = weight_bytes_ * experts / static_cast<double>(all_calls);
    timing.flops = flops_of(tokens);
    return timing;
  }

  const LayerShape& shape_;
  Executor& executor_;
  std::mt19937_64 random_{1};
  std::vector<MoeLayer> layers_;
  double weight_bytes_ = 0;  // of one expert
  std::size_t next_ = 0;
  int warm_up_ = 2;
};

}  // namespace

Result<std::vector<LayerShape>> parse_shapes(std::string_view text, const std::string& where) {
  std::string of_experts(text);
  FEWBIT_TRY(std::vector<LayerShape> linear, take_linear_shapes(of_experts, where));
  FEWBIT_TRY(const std::vector<NamedProblem> problems, parse_problems(of_experts, where));
  std::vector<LayerShape> shapes;
  std::string last;
  for (const auto& [name, problem] : problems) {
    const std::string model = name.substr(0, name.find('/'));
    LayerShape shape{.name = model == last ? name : model,
                     .hidden_size = problem.hidden_size,
                     .intermediate_size = problem.intermediate_size,
                     .num_experts = problem.num_experts,
                     .top_k = problem.top_k,
                     .scheme = name.substr(model.size() + 1),
                     .activation = problem.activation,
                     .biases = problem.biases};
    if (!activation_gated(problem.activation.kind)) shape.unmeasured = "experts without a gate";
    shapes.push_back(std::move(shape));
    last = model;
  }
  std::ranges::move(linear, std::back_inserter(shapes));
  return shapes;
}

Result<std::vector<LayerShape>> read_shapes(const std::filesystem::path& path) {
  constexpr std::size_t largest = std::size_t{1} << 24;
  FEWBIT_TRY(expect_regular_file(path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::not_found, "can't be opened", path.string()};
  std::string text(largest + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > largest) {
    return Error{ErrorCode::limit, fmt::format("has more than {} bytes", largest), path.string()};
  }
  FEWBIT_TRY(std::vector<LayerShape> shapes, parse_shapes(text, path.string()));
  if (shapes.empty()) {
    return Error{ErrorCode::invalid_argument, "no shape in it, expected a line of one at least",
                 path.string()};
  }
  return shapes;
}

Result<LayerBench> bench_layer(const LayerShape& shape, const DeviceInfo& device,
                               const LayerBenchOptions& options, Executor& executor) {
  if (options.tokens.empty()) {
    return Error{ErrorCode::invalid_argument, "no number of tokens to measure", shape.name};
  }
  if (!shape.unmeasured.empty()) {
    return Error{ErrorCode::unsupported, shape.unmeasured + " are not measured", shape.name};
  }
  if (shape.linear && options.router) {
    return Error{ErrorCode::invalid_argument, "a dense layer has no router", shape.name};
  }
  if (shape.linear) return bench_linear(shape, device, options, executor);
  return Bench(shape, executor).run(device, options);
}

}  // namespace fewbit::bench
