// SPDX-License-Identifier: Apache-2.0
// Dense layers on a GPU against the time in which their weights can be read.
//
// usage: bench_gpu_linear [--format NAME,NAME|all] [--tokens 1,4,16] [--kernels stream|grouped]
// [--items N] [--scan 1]
//
// Formats: NVFP4, INT4-g128 and FP8-block, which are measured unless others are named, INT8-g128,
// MXFP8, Q4_0, Q8_0, Q2_0, NF3.
//
// One graph holds a call on each of several copies of the weights, so that no copy is in the
// second-level cache when its turn comes. Time: median of 30 replays divided by the copies. Floor:
// bytes of weights, activations and results at 4.62 TB/s, or the multiply-adds at 780 TFLOP/s.
#include <array>
#include <cstring>
#include <string>

#include "backends/cuda_moe/grouped_plan.hpp"
#include "bench/gpu_time.hpp"
#include "bench/usage.hpp"
#include "device/device_layer.hpp"
#include "device/random_layer.hpp"

namespace fewbit::cuda {
namespace {

constexpr Dims sizes[] = {{2048, 2048}, {4096, 4096}, {5120, 8192}, {1024, 4096}, {24576, 4096}};

struct Format {
  const char* name;
  CellFormat cells;
  double bits;
};
const Format formats[] = {{"NVFP4", nvfp4_cells, 4.5},
                          {"INT4-g128", int4_cells(4, false, true), 4.125},
                          {"FP8-block", {.kind = CellKind::f8}, 8.002},
                          {"INT8-g128", int8_cells(4, false, true), 8.125},
                          {"MXFP8", {.kind = CellKind::mxfp8}, 8.25},
                          {"Q4_0", int4_cells(1, false, true), 4.5},
                          {"Q8_0", int8_cells(1, false, true), 8.5},
                          {"Q2_0", ternary_cells(2, true), 2.25},
                          {"NF3", nf3_cells, 3.5}};

struct Options {
  std::vector<std::int64_t> tokens = {1, 4, 16, 32, 64, 128, 256, 512, 1024, 4096};
  std::string kernels;
  int item_rows = 0;
  bool scan = false;                                 // all kernels and items
  std::string format = "NVFP4,INT4-g128,FP8-block";  // names, with commas; empty: all
};

// One of the kernels; items of the grouped ones, 0: as the backend chooses.
struct Variant {
  bool grouped = false;
  int item_rows = 0;
};

// What calls of one shape need, and their outputs.
struct Calls {
  device::Buffer x, ids, weights, out, scratch, products, counters;
};

Result<Calls> make_calls(const StreamShape& shape, std::uint64_t scratch,
                         const device::Stream& stream) {
  Calls calls;
  const auto tokens = static_cast<std::size_t>(shape.tokens);
  std::vector<std::uint16_t> x;
  std::uint64_t seed = 3;
  for (std::int64_t i = 0; i < shape.tokens * shape.intermediate_size; ++i) {
    x.push_back(f32_to_bf16(static_cast<float>(next_random(seed) >> 40) / float(1 << 24) - 0.5F));
  }
  FEWBIT_TRY(calls.x, upload(x, stream));
  FEWBIT_TRY(calls.ids, upload(std::vector<std::int32_t>(tokens, 0), stream));
  FEWBIT_TRY(calls.weights, upload(std::vector<float>(tokens, 1.0F), stream));
  const std::uint64_t results = tokens * static_cast<std::uint64_t>(shape.hidden_size);
  FEWBIT_TRY(calls.out, device::Buffer::allocate(2 * results, stream));
  FEWBIT_TRY(calls.products, device::Buffer::allocate(4 * results, stream));
  FEWBIT_TRY(calls.counters, device::Buffer::allocate(1 << 16, stream));
  FEWBIT_TRY(device::fill(calls.counters.data(), 0, calls.counters.size(), stream));
  FEWBIT_TRY(calls.scratch, device::Buffer::allocate(scratch + 1024, stream));
  return calls;
}

MoeF4Args args_of(const Calls& calls, const DeviceWeights& weights) {
  MoeF4Args args;
  args.w2 = weights.w2.as<std::uint8_t>();
  args.global13 = weights.global13.as<float>();
  args.global2 = weights.global2.as<float>();
  args.topk_ids = calls.ids.as<std::int32_t>();
  args.topk_weights = calls.weights.as<float>();
  args.x = args.activated = calls.x.data();
  args.products = calls.products.as<float>();
  args.counters = calls.counters.as<std::uint32_t>();
  args.out = calls.out.data();
  return args;
}

// Microseconds of a call, by one of the kernels.
Result<double> measure(const Format& format, const StreamShape& shape, const StreamCard& card,
                       const std::vector<DeviceWeights>& copies, const Variant& variant,
                       const device::Stream& stream) {
  StreamPlan streaming;
  GroupedPlan many;
  if (variant.grouped) {
    FEWBIT_TRY(many, plan_grouped(shape, card, variant.item_rows));
  } else {
    FEWBIT_TRY(streaming, plan_stream(format.cells, shape, card));
  }
  FEWBIT_TRY(const Calls calls,
             make_calls(shape, static_cast<std::uint64_t>(many.scratch_bytes), stream));
  const auto past = reinterpret_cast<std::uintptr_t>(calls.scratch.data()) % 1024;
  std::byte* const scratch = calls.scratch.data() + (past == 0 ? 0 : 1024 - past);
  const auto all = [&]() -> Result<void> {
    for (const DeviceWeights& weights : copies) {
      MoeF4Args args = args_of(calls, weights);
      const int status =
          variant.grouped
              ? launch_moe_f4_grouped(format.cells, many, args, scratch, stream.handle())
              : launch_moe_f4(format.cells, streaming, args, stream.handle());
      FEWBIT_TRY(device::check(status, "dense layer"));
    }
    return {};
  };
  FEWBIT_TRY(const device::Graph graph, device::Graph::record(stream, all));
  FEWBIT_TRY(const double microseconds, replay_time(graph, 30, stream));
  return microseconds / static_cast<double>(copies.size());
}

Result<std::vector<DeviceWeights>> prepare_copies(const Format& format, Dims size,
                                                  const device::Stream& stream) {
  // The layer's other matrix is only as long as it must be.
  const StreamShape shape{
      .tokens = 0, .top_k = 1, .experts = 1, .hidden_size = size.n, .intermediate_size = size.k};
  const RandomLayer layer = random_layer(format.cells, shape, 7);
  std::vector<DeviceWeights> copies;
  const double used = static_cast<double>(size.n * size.k) * format.bits / 8;
  const int count = std::clamp(static_cast<int>(2e8 / used) + 1, 3, 40);
  for (int i = 0; i < count; ++i) {
    FEWBIT_TRY(DeviceWeights weights, prepare_weights(format.cells, shape,
                                                      {.codes = layer.codes,
                                                       .scales = layer.scales,
                                                       .globals = &layer.globals,
                                                       .zeros = layer.zeros,
                                                       .group = layer.group,
                                                       .f8_scales = layer.f8_scales},
                                                      stream));
    weights.w13 = device::Buffer();
    copies.push_back(std::move(weights));
  }
  return copies;
}

std::vector<Variant> variants_of(const StreamShape& shape, const Options& options) {
  if (options.scan) return {{false, 0}, {true, 32}, {true, 64}, {true, 128}};
  const bool grouped = options.kernels.empty() ? runs_grouped(shape) : options.kernels == "grouped";
  return {{grouped, options.item_rows}};
}

void print_measured(const Format& format, const StreamShape& shape, const Variant& variant,
                    const Result<double>& time) {
  const auto [n, k, tokens] = std::array{shape.hidden_size, shape.intermediate_size, shape.tokens};
  const double weights = static_cast<double>(n * k);
  const double bytes = weights * format.bits / 8 + 2.0 * static_cast<double>(tokens * (n + k));
  const double flops = 2 * weights * static_cast<double>(tokens);
  const double floor = 1e6 * std::max(bytes / 4.62e12, flops / 780e12);
  std::printf("%-9s %5lld x %5lld M %4lld  ", format.name, static_cast<long long>(n),
              static_cast<long long>(k), static_cast<long long>(tokens));
  if (!time) {
    std::printf("%s\n", time.error().message().c_str());
    return;
  }
  const int rows = variant.item_rows != 0 ? variant.item_rows : grouped_item_width(shape);
  std::printf("%8.1f us  floor %7.1f  fraction %.2f   %s\n", *time, floor, floor / *time,
              variant.grouped ? ("grouped " + std::to_string(rows)).c_str() : "stream");
  std::fflush(stdout);
}

Result<void> measure_size(const Format& format, Dims size, const Options& options,
                          const StreamCard& card) {
  FEWBIT_TRY(const device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const std::vector<DeviceWeights> copies, prepare_copies(format, size, stream));
  for (const std::int64_t tokens : options.tokens) {
    const StreamShape shape = dense_shape(format.cells.kind, tokens, size);
    for (const Variant& variant : variants_of(shape, options)) {
      print_measured(format, shape, variant, measure(format, shape, card, copies, variant, stream));
    }
  }
  return {};
}

int run(const Options& options) {
  const Result<DeviceInfo> found = print_card();
  if (!found) return failed(found.error());
  for (const Dims size : sizes) {
    for (const Format& format : formats) {
      if (!names(options.format, format.name)) continue;
      const Result<void> done = measure_size(format, size, options, card_of(*found));
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
          "bench_gpu_linear [--format NAME,NAME|all] [--tokens 1,4,16] [--kernels stream|grouped] "
          "[--items N] "
          "[--scan 1]",
      .options = {"--format", "--tokens", "--kernels", "--items", "--scan"}};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  fewbit::cuda::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--scan") options.scan = std::atoi(argv[i + 1]) != 0;
    if (name == "--format") options.format = std::strcmp(argv[i + 1], "all") ? argv[i + 1] : "";
    if (name == "--items") options.item_rows = std::atoi(argv[i + 1]);
    if (name == "--kernels") options.kernels = argv[i + 1];
    if (name == "--tokens") options.tokens = fewbit::cuda::numbers_of(argv[i + 1]);
  }
  return fewbit::cuda::run(options);
}
