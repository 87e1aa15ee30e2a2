// SPDX-License-Identifier: Apache-2.0
// What a machine can do and how near a MoE layer comes to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/moe.hpp"

namespace fewbit::bench {

// Both with all threads of the executor together, best of several rounds.
struct MachineLimits {
  int threads = 1;
  double read_bytes_per_second = 0;  // of memory far larger than the caches, one stream a thread
  double fma_flops_per_second = 0;   // f32 multiply-adds of the device's level; 0: not measured
  double tile_flops_per_second = 0;  // products of bf16 tiles; 0: the device has none
};
// Holds the half a GiB that is read, so that limits can be measured again. Error limit when that
// can't be had.
class LimitProbe {
 public:
  static Result<LimitProbe> open(const DeviceInfo& device, Executor& executor);
  // The best of so many rounds; five take about a second.
  MachineLimits measure(int rounds);

 private:
  LimitProbe(IsaLevel level, Executor& executor, AlignedBuffer memory);
  IsaLevel level_;
  Executor* executor_;
  AlignedBuffer memory_;
};

// Of a dense layer.
struct LinearSize {
  std::int64_t out_features = 0;
  std::int64_t in_features = 0;
};

// A named MoE layer, or with `linear` a dense one. Weights: a name of select/problem_list.hpp, as
// "nvfp4" or "awq-int4-g128".
struct LayerShape {
  std::string name;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_experts = 0;
  int top_k = 1;
  std::string scheme = "nvfp4";
  ActivationParams activation = {};
  bool biases = false;
  std::optional<LinearSize> linear = std::nullopt;
  std::string unmeasured = {};  // not empty: what such layers have that is not measured
};
// Lines as tests/problems/models.txt and linear_layers.txt have them, dense layers last; a layer of
// several schemes has its first one under its name, the others as name/scheme. Errors: not_found,
// corrupt (file, line and what is wrong).
Result<std::vector<LayerShape>> parse_shapes(std::string_view text, const std::string& where);
Result<std::vector<LayerShape>> read_shapes(const std::filesystem::path& path);
// "Qwen3-30B-A3B/nf3", in any case of letters; the first kind of a model with or without its name.
// Error invalid_argument: what was meant, or all names.
Result<LayerShape> find_shape(const std::vector<LayerShape>& shapes, std::string_view name);
std::string names_of(const std::vector<LayerShape>& shapes);

struct LayerBenchOptions {
  std::vector<std::int64_t> tokens = {1, 4, 16, 64, 128, 512};
  DType activation_dtype = DType::bf16;
  std::string backend;  // forced; empty: as selection chooses
  // Experts on a GPU: calls begin with logits, from which the layer's own router (softmax,
  // renormalized) chooses, in the measured time.
  bool router = false;
  std::uint64_t resident_bytes = std::uint64_t{1} << 29;  // weights to rotate through, at least
  double seconds = 0.5;                                   // measured time of each number of tokens
  // Asked between calls: true ends the bench with the numbers of tokens that are done.
  std::function<bool()> stop = {};
  // What the machine can do, in place of measuring it (empty).
  std::function<Result<MachineLimits>()> limits = {};
};

struct LayerTiming {
  std::int64_t tokens = 0;
  double seconds = 0;  // median of a call
  int calls = 0;
  double weight_bytes = 0;  // of the experts that a call uses, mean
  double flops = 0;         // of its three products, two a multiply-add
  double bytes_per_second() const { return weight_bytes / seconds; }
  double flops_per_second() const { return flops / seconds; }
  double of_read(const MachineLimits& limits) const {
    return bytes_per_second() / limits.read_bytes_per_second;
  }
  // 0 where multiply-adds aren't measured.
  double of_fma(const MachineLimits& limits) const {
    return limits.fma_flops_per_second == 0 ? 0 : flops_per_second() / limits.fma_flops_per_second;
  }
  double of_tiles(const MachineLimits& limits) const {
    return limits.tile_flops_per_second == 0 ? 0
                                             : flops_per_second() / limits.tile_flops_per_second;
  }
};

struct LayerBench {
  LayerShape shape;
  std::string backend;
  PreparedInfo prepared;       // of one copy
  int copies = 1;              // prepared layers that calls rotate through
  double prepare_seconds = 0;  // of one copy
  // Measured before the layer, after it and after every number of tokens: the best, which shares
  // are of, and the lowest of each.
  MachineLimits limits;
  MachineLimits lowest;
  int limit_measurements = 0;

  std::uint64_t weight_bytes() const { return prepared.owned_bytes + prepared.mapped_bytes; }
  std::vector<LayerTiming> timings;
};
// Random weights and even random routing (top_k different experts a token), the same every time.
// Errors: of selection, preparation and run; invalid_argument for an unknown scheme. Stopped, it
// has fewer timings than options.tokens.
Result<LayerBench> bench_layer(const LayerShape& shape, const DeviceInfo& device,
                               const LayerBenchOptions& options, Executor& executor);

// A table of a bench with the fractions of the limits, and a note where they can't be trusted.
std::string bench_text(const LayerBench& bench);

}  // namespace fewbit::bench
