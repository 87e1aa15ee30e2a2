// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_linear.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "bench/limit_track.hpp"
#include "bench/random_layer.hpp"
#include "bench/time_calls.hpp"
#include "core/aligned_buffer.hpp"
#include "fewbit/linear.hpp"

namespace fewbit::bench {
namespace {

// The same codes elsewhere: weights that are read in place are rotated out of the caches too.
Result<QuantizedTensor> elsewhere(const QuantizedTensor& weight) {
  QuantizedTensor out = weight;
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, {std::ssize(weight.codes.view.bytes)}));
  std::memcpy(codes.bytes.data(), weight.codes.view.bytes.data(), codes.bytes.size());
  out.codes.owner = codes.tensor.owner;
  out.codes.view.bytes = codes.tensor.view.bytes;
  return out;
}

// Layers to rotate through, and calls on them.
class LinearBench {
 public:
  LinearBench(const LayerShape& shape, Executor& executor) : shape_(shape), executor_(executor) {}

  Result<LayerBench> run(const DeviceInfo& device, const LayerBenchOptions& options) {
    LayerBench bench;
    bench.shape = shape_;
    FEWBIT_TRY(prepare(device, options, bench));
    FEWBIT_TRY(time_beside_limits(device, options, executor_, bench, [&](std::int64_t tokens) {
      return time(tokens, options, bench);
    }));
    return bench;
  }

 private:
  Result<void> prepare(const DeviceInfo& device, const LayerBenchOptions& options,
                       LayerBench& bench) {
    FEWBIT_TRY(QuantizedTensor weight, random_matrix(shape_, random_));
    const LinearProblem problem{.n = weight.n,
                                .k = weight.k,
                                .weight = weight.scheme,
                                .activation_dtype = options.activation_dtype,
                                .output_dtype = options.activation_dtype,
                                .max_tokens = *std::ranges::max_element(options.tokens),
                                .where = shape_.name};
    std::uint64_t bytes = 0;
    do {
      const auto start = Clock::now();
      FEWBIT_TRY(LinearLayer layer, LinearLayer::prepare(problem, weight, device,
                                                         {.backend = options.backend}, executor_));
      bench.prepare_seconds = seconds_since(start);
      bench.prepared = layer.info();
      bytes += bench.weight_bytes();
      layers_.push_back(std::move(layer));
      if (bench.prepared.owned_bytes == 0) {
        FEWBIT_TRY(weight, elsewhere(weight));
      }
    } while (bytes < options.resident_bytes && !(options.stop && options.stop()));
    bench.backend = bench.prepared.backend;
    bench.copies = static_cast<int>(layers_.size());
    return {};
  }

  Result<LayerTiming> time(std::int64_t tokens, const LayerBenchOptions& options,
                           const LayerBench& bench) {
    const LinearProblem& problem = layers_.front().problem();
    FEWBIT_TRY(const Tensor x, random_tensor(problem.activation_dtype, {tokens, problem.k},
                                             Fill::numbers, random_));
    std::vector<std::byte> y(x.view.bytes.size() / static_cast<std::size_t>(problem.k) *
                             static_cast<std::size_t>(problem.n));
    FEWBIT_TRY(const std::uint64_t workspace_bytes, layers_.front().workspace_bytes(tokens));
    FEWBIT_TRY(AlignedBuffer workspace, AlignedBuffer::allocate(workspace_bytes));
    FEWBIT_TRY(const CallTimes times, time_calls(options, warm_up_, [&]() -> Result<double> {
                 const LinearLayer& layer = layers_[next_++ % layers_.size()];
                 const auto start = Clock::now();
                 FEWBIT_TRY(layer.run(tokens, x.view, y, workspace.span(), executor_));
                 return seconds_since(start);
               }));
    LayerTiming timing{.tokens = tokens, .seconds = times.seconds, .calls = times.calls};
    timing.weight_bytes = static_cast<double>(bench.weight_bytes());
    timing.flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(problem.n) *
                   static_cast<double>(problem.k);
    return timing;
  }

  const LayerShape& shape_;
  Executor& executor_;
  std::mt19937_64 random_{1};
  std::vector<LinearLayer> layers_;
  std::size_t next_ = 0;
  int warm_up_ = 2;
};

}  // namespace

Result<LayerBench> bench_linear(const LayerShape& shape, const DeviceInfo& device,
                                const LayerBenchOptions& options, Executor& executor) {
  return LinearBench(shape, executor).run(device, options);
}

}  // namespace fewbit::bench
