// SPDX-License-Identifier: Apache-2.0
// MoE layers on a GPU against the time in which their weights can be read.
//
// usage: bench_gpu_moe [--shape NAME] [--format NAME,NAME|all] [--tokens 1,4,16] [--scan 1]
//                     [--split1 N] [--split2 N] [--tiles N] [--kernels stream|grouped] [--items N]
//
// Formats: NVFP4, MXFP4, INT4-g128, INT4-g32 and FP8-block, which are measured unless others are
// named, INT4-order (groups of 128 in act-order), INT8-g128, MXFP8, Q4_0, Q8_0, Q2_0, NF3.
//
// One graph holds a call on each of several copies of the weights, so that no copy is in the
// second-level cache when its turn comes; each has its own random routing. Time: median of 30
// replays divided by the copies. Floor: bytes of the experts that are used, and of x and out,
// at 4.62 TB/s, or the multiply-adds at 780 TFLOP/s, whichever is longer: what an H200 reads and
// multiplies.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "backends/cuda_moe/grouped_plan.hpp"
#include "bench/gpu_order.hpp"
#include "bench/gpu_time.hpp"
#include "bench/usage.hpp"
#include "device/device_layer.hpp"
#include "device/random_layer.hpp"

namespace fewbit::cuda {
namespace {

struct Named {
  const char* name;
  std::int64_t hidden, inner, experts, top_k;
};
constexpr Named shapes[] = {{"tiny-moe", 256, 128, 16, 4},
                            {"Qwen3-30B-A3B", 2048, 768, 128, 8},
                            {"gpt-oss-120b", 2880, 2880, 128, 4},
                            {"GLM-4.5-Air", 4096, 1408, 128, 8},
                            {"DeepSeek-V3", 7168, 2048, 256, 8}};

struct Format {
  const char* name;
  CellFormat cells;
  std::int64_t group;
  double bits;           // of a weight, with its part of the scales
  bool ordered = false;  // act-order: activations are put in it first
};
const Format formats[] = {
    {"NVFP4", nvfp4_cells, 16, 4.5},
    {"MXFP4", mxfp4_cells, 32, 4.25},
    {"INT4-g128", int4_cells(4, false, true), 128, 4.125},
    {"INT4-g32", int4_cells(1, false, false), 32, 4.5},
    {"FP8-block", {.kind = CellKind::f8}, 128, 8.002},
    {"INT4-order", int4_cells(4, false, true), 128, 4.125, true},
    {"INT8-g128", int8_cells(4, false, true), 128, 8.125},
    {"MXFP8", {.kind = CellKind::mxfp8}, 32, 8.25},
    {"Q4_0", int4_cells(1, false, true), 32, 4.5},
    {"Q8_0", int8_cells(1, false, true), 32, 8.5},
    {"Q2_0", ternary_cells(2, true), 64, 2.25},
    {"NF3", nf3_cells, 32, 3.5},
};

constexpr const char* usual_formats = "NVFP4,MXFP4,INT4-g128,INT4-g32,FP8-block";

struct Options {
  std::string shape;
  std::string format = usual_formats;
  std::vector<std::int64_t> tokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096};
  StreamChoice choice;
  bool scan = false;  // all choices, the fastest three shown
  int item_rows = 0;
  std::string kernels;  // "stream" or "grouped"; empty: as the backend chooses
  int replays = 30;
};

struct Measured {
  double microseconds = 0;
  double floor = 0;
  StreamPlan plan;
  int item_rows = 0;  // of the grouped kernels; 0: the streaming one
};

// Weights of one expert, random, for all of them.
struct Source {
  std::vector<std::uint8_t> codes[3], scales[3];
  std::vector<float> f8_scales[3];
  std::vector<float> globals;
};

Source random_source(const Format& format, const Named& s) {
  Source source;
  std::uint64_t seed = 7;
  RandomLayer sizes;
  sizes.shape = {1, s.top_k, s.experts, s.hidden, s.inner};
  sizes.group = format.group;
  for (int m = 0; m < 3; ++m) {
    if (format.cells.kind == CellKind::f8) {
      source.codes[m].resize(static_cast<std::size_t>(s.hidden * s.inner));
      for (auto& b : source.codes[m]) b = static_cast<std::uint8_t>(next_random(seed) & 0xBF);
      const std::int64_t blocks = (sizes.rows(m) + 127) / 128 * sizes.groups(m);
      source.f8_scales[m].assign(static_cast<std::size_t>(blocks), 0.01F);
      continue;
    }
    const int code_bits = has_int_cells(format.cells.kind)       ? format.cells.ints.bits
                          : format.cells.kind == CellKind::mxfp8 ? 8
                                                                 : 4;
    source.codes[m].resize(static_cast<std::size_t>(s.hidden * s.inner * code_bits / 8));
    for (auto& b : source.codes[m]) {
      b = static_cast<std::uint8_t>(next_random(seed));
      if (format.cells.kind == CellKind::mxfp8) b &= 0xBF;
    }
    for (std::int64_t i = 0; i < sizes.rows(m) * sizes.groups(m); ++i) {
      const std::uint64_t r = next_random(seed);
      if (has_int_cells(format.cells.kind)) {
        const float value = 0.002F + 0.028F * static_cast<float>(r % 4096) / 4096;
        const std::uint16_t bits = format.cells.f16_scales ? f32_to_f16(value) : f32_to_bf16(value);
        source.scales[m].push_back(static_cast<std::uint8_t>(bits & 255));
        source.scales[m].push_back(static_cast<std::uint8_t>(bits >> 8));
      } else {
        const bool nvfp4 = format.cells.kind == CellKind::nvfp4;
        source.scales[m].push_back(static_cast<std::uint8_t>(nvfp4 ? 0x30 + r % 16 : 124 + r % 5));
      }
    }
  }
  source.globals.assign(static_cast<std::size_t>(s.experts * 3), 0.01F);
  return source;
}

// Random activations, and for each token top_k different experts.
struct Routed {
  RandomLayer layer;
  std::size_t experts_hit = 0;
};

Routed random_routes(const StreamShape& shape, std::uint64_t seed) {
  Routed out;
  std::set<std::int32_t> hit;
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    std::set<std::int32_t> mine;
    while (static_cast<std::int64_t>(mine.size()) < shape.top_k) {
      mine.insert(
          static_cast<std::int32_t>(next_random(seed) % static_cast<std::uint64_t>(shape.experts)));
    }
    for (const std::int32_t id : mine) {
      out.layer.ids.push_back(id);
      out.layer.weights.push_back(0.125F);
      hit.insert(id);
    }
    for (std::int64_t k = 0; k < shape.hidden_size; ++k) {
      out.layer.x.push_back(
          f32_to_bf16(static_cast<float>(next_random(seed) >> 40) / float(1 << 24) - 0.5F));
    }
  }
  out.experts_hit = hit.size();
  return out;
}

// Microseconds in which the weights can be read and the products made.
double floor_of(const Format& format, const StreamShape& shape, double experts_hit) {
  const double weights = static_cast<double>(3 * shape.hidden_size * shape.intermediate_size);
  const double bytes = experts_hit * weights * format.bits / 8 +
                       4.0 * static_cast<double>(shape.tokens * shape.hidden_size);
  const double flops = 2 * weights * static_cast<double>(shape.tokens * shape.top_k);
  return 1e6 * std::max(bytes / 4.62e12, flops / 780e12);
}

Result<Measured> measure(const Format& format, const StreamShape& shape, const StreamCard& card,
                         const std::vector<DeviceWeights>& copies, const StreamChoice& choice,
                         int replays, const device::Stream& stream) {
  Measured result;
  FEWBIT_TRY(result.plan, plan_stream(format.cells, shape, card, choice));
  std::vector<DeviceCall> calls;
  double experts_hit = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Routed routed = random_routes(shape, 100 * i + static_cast<std::uint64_t>(shape.tokens));
    const RandomLayer& layer = routed.layer;
    experts_hit += static_cast<double>(routed.experts_hit) / static_cast<double>(copies.size());
    FEWBIT_TRY(DeviceCall call,
               make_call(result.plan, {&layer.x, &layer.ids, &layer.weights}, stream));
    calls.push_back(std::move(call));
  }
  FEWBIT_TRY(const Ordering ordering, Ordering::create(shape, stream));
  const auto all = [&]() -> Result<void> {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      MoeF4Args args = calls[i].args(copies[i]);
      args.x = calls.front().x.data();  // as another layer left it: in the second-level cache
      FEWBIT_TRY(ordering.run(args, stream));
      FEWBIT_TRY(
          device::check(launch_moe_f4(format.cells, result.plan, args, stream.handle()), "moe_f4"));
    }
    return {};
  };
  FEWBIT_TRY(const device::Graph graph, device::Graph::record(stream, all));
  FEWBIT_TRY(const double microseconds, replay_time(graph, replays, stream));
  result.microseconds = microseconds / static_cast<double>(copies.size());
  result.floor = floor_of(format, shape, experts_hit);
  return result;
}

Result<Measured> measure_grouped(const Format& format, const StreamShape& shape,
                                 const StreamCard& card, const std::vector<DeviceWeights>& copies,
                                 int item_rows, int replays, const device::Stream& stream) {
  Measured result;
  FEWBIT_TRY(const GroupedPlan plan, plan_grouped(shape, card, item_rows));
  result.item_rows = plan.item_rows;
  StreamPlan sizes;
  sizes.tokens = plan.tokens;
  sizes.hidden = plan.hidden;
  FEWBIT_TRY(const device::Buffer scratch,
             device::Buffer::allocate(static_cast<std::uint64_t>(plan.scratch_bytes), stream));
  std::vector<DeviceCall> calls;
  double experts_hit = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Routed routed = random_routes(shape, 100 * i + static_cast<std::uint64_t>(shape.tokens));
    const RandomLayer& layer = routed.layer;
    experts_hit += static_cast<double>(routed.experts_hit) / static_cast<double>(copies.size());
    FEWBIT_TRY(DeviceCall call, make_call(sizes, {&layer.x, &layer.ids, &layer.weights}, stream));
    calls.push_back(std::move(call));
  }
  FEWBIT_TRY(const Ordering ordering, Ordering::create(shape, stream));
  const auto all = [&]() -> Result<void> {
    for (std::size_t i = 0; i < copies.size(); ++i) {
      MoeF4Args args = calls[i].args(copies[i]);
      args.x = calls.front().x.data();
      FEWBIT_TRY(ordering.run(args, stream));
      FEWBIT_TRY(device::check(
          launch_moe_f4_grouped(format.cells, plan, args, scratch.data(), stream.handle()),
          "moe_f4_grouped"));
    }
    return {};
  };
  FEWBIT_TRY(const device::Graph graph, device::Graph::record(stream, all));
  FEWBIT_TRY(const double microseconds, replay_time(graph, replays, stream));
  result.microseconds = microseconds / static_cast<double>(copies.size());
  result.floor = floor_of(format, shape, experts_hit);
  return result;
}

// Every way to run a call, the four fastest shown as (split of fc1, split of fc2, tiles).
void scan(const Format& format, const char* name, const StreamShape& shape, const StreamCard& card,
          const std::vector<DeviceWeights>& copies, const device::Stream& stream) {
  std::vector<Measured> all;
  for (const int split1 : {1, 2, 4, 8, 16}) {
    for (const int split2 : {1, 2, 4, 8}) {
      for (const int tiles : {1, 2, 4}) {
        if (tiles > 1 && shape.tokens < 16) continue;
        if (split1 * split2 > 4 && shape.tokens > 16) continue;
        const Result<Measured> m =
            measure(format, shape, card, copies, {split1, split2, tiles}, 9, stream);
        if (m && m->plan.token_tiles == tiles) all.push_back(*m);
      }
    }
  }
  std::sort(all.begin(), all.end(),
            [](const Measured& a, const Measured& b) { return a.microseconds < b.microseconds; });
  std::printf("%-14s %s M %4lld ", name, format.name, static_cast<long long>(shape.tokens));
  for (std::size_t i = 0; i < 4 && i < all.size(); ++i) {
    std::printf("  %.1f (%d,%d,%d)", all[i].microseconds, all[i].plan.fc1.split,
                all[i].plan.fc2.split, all[i].plan.token_tiles);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// 400 MB between two uses of an expert, though one token uses only a few.
Result<std::vector<DeviceWeights>> prepare_copies(const Format& format, const Named& s,
                                                  const StreamShape& layer,
                                                  const device::Stream& stream) {
  const Source source = random_source(format, s);
  std::vector<DeviceWeights> copies;
  const double used = 3.0 * static_cast<double>(s.hidden * s.inner * s.top_k) * format.bits / 8;
  const int count = std::clamp(static_cast<int>(4e8 / used) + 1, 3, 10);
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    FEWBIT_TRY(DeviceWeights weights, prepare_weights(format.cells, layer,
                                                      {.codes = source.codes,
                                                       .scales = source.scales,
                                                       .globals = &source.globals,
                                                       .same_for_all = true,
                                                       .group = format.group,
                                                       .f8_scales = source.f8_scales},
                                                      stream));
    copies.push_back(std::move(weights));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  std::printf("%s: %d copies prepared in %.2f s\n", s.name, count, took.count());
  return copies;
}

void print_measured(const Format& format, const char* name, std::int64_t tokens,
                    const Result<Measured>& m) {
  std::printf("%-14s %-10s M %4lld  ", name, format.name, static_cast<long long>(tokens));
  if (!m) {
    std::printf("%s\n", m.error().message().c_str());
    return;
  }
  std::printf("%8.1f us  floor %7.1f  fraction %.2f   ", m->microseconds, m->floor,
              m->floor / m->microseconds);
  if (m->item_rows != 0) {
    std::printf("grouped, items of up to %d\n", m->item_rows);
  } else {
    std::printf("split %d,%d tiles %d slots %d\n", m->plan.fc1.split, m->plan.fc2.split,
                m->plan.token_tiles, m->plan.slots);
  }
  std::fflush(stdout);
}

Result<void> measure_shape(const Format& format, const Named& s, const Options& options,
                           const StreamCard& card) {
  FEWBIT_TRY(const device::Stream stream, device::Stream::create());
  StreamShape layer = {1, s.top_k, s.experts, s.hidden, s.inner};
  layer.kind = format.cells.kind;
  layer.ordered = format.ordered;
  FEWBIT_TRY(const std::vector<DeviceWeights> copies, prepare_copies(format, s, layer, stream));
  for (const std::int64_t tokens : options.tokens) {
    StreamShape shape = layer;
    shape.tokens = tokens;
    if (options.scan) {
      scan(format, s.name, shape, card, copies, stream);
      continue;
    }
    const bool grouped =
        options.kernels.empty() ? runs_grouped(shape) : options.kernels == "grouped";
    print_measured(
        format, s.name, tokens,
        grouped ? measure_grouped(format, shape, card, copies, options.item_rows, options.replays,
                                  stream)
                : measure(format, shape, card, copies, options.choice, options.replays, stream));
  }
  return {};
}

int run(const Options& options) {
  const Result<DeviceInfo> found = print_card();
  if (!found) return failed(found.error());
  for (const Named& s : shapes) {
    if (!options.shape.empty() && options.shape != s.name) continue;
    for (const Format& format : formats) {
      if (!names(options.format, format.name)) continue;
      if (options.scan && options.format == usual_formats && &format != formats) continue;
      const Result<void> done = measure_shape(format, s, options, card_of(*found));
      if (!done) return failed(done.error());
    }
  }
  return 0;
}

}  // namespace
}  // namespace fewbit::cuda

int main(int argc, char** argv) {
  const fewbit::bench::Usage usage{
      .text =
          "bench_gpu_moe [--shape NAME] [--format NAME,NAME|all] [--tokens 1,4,16] [--scan 1] "
          "[--split1 N] "
          "[--split2 N] [--tiles N] [--kernels stream|grouped] [--items N]",
      .options = {"--shape", "--format", "--tokens", "--scan", "--split1", "--split2", "--tiles",
                  "--kernels", "--items"}};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  fewbit::cuda::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--shape") options.shape = value;
    if (name == "--format") options.format = std::strcmp(value, "all") == 0 ? "" : value;
    if (name == "--split1") options.choice.split1 = std::atoi(value);
    if (name == "--split2") options.choice.split2 = std::atoi(value);
    if (name == "--items") options.item_rows = std::atoi(value);
    if (name == "--kernels") options.kernels = value;
    if (name == "--scan") options.scan = std::atoi(value) != 0;
    if (name == "--tiles") options.choice.token_tiles = std::atoi(value);
    if (name == "--tokens") options.tokens = fewbit::cuda::numbers_of(value);
  }
  return fewbit::cuda::run(options);
}
