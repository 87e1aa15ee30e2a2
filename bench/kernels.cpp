// SPDX-License-Identifier: Apache-2.0
// One kernel on one thread, weights in the second-level cache: what it costs without the memory.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/kernel_table.hpp"
#include "core/aligned_buffer.hpp"
#include "core/device_info.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t k = 2048;
constexpr std::int64_t blocks = 16;

// Memory of random bytes that stay below 0x40: finite as scales and as 16-bit values.
AlignedBuffer random_bytes(std::int64_t size) {
  AlignedBuffer buffer = *AlignedBuffer::allocate(static_cast<std::uint64_t>(size));
  std::mt19937 random(1);
  for (std::byte& byte : buffer.span()) byte = static_cast<std::byte>(random() % 0x40);
  return buffer;
}

struct Panels {
  explicit Panels(int tokens)
      : x(*AlignedBuffer::allocate(static_cast<std::uint64_t>(k * tokens * 4))),
        y(*AlignedBuffer::allocate(static_cast<std::uint64_t>(blocks * 16 * tokens * 4))) {
    for (std::int64_t i = 0; i < k * tokens; ++i) in()[i] = static_cast<float>(i % 13) - 6.0F;
  }
  float* in() { return reinterpret_cast<float*>(x.data()); }
  float* out() { return reinterpret_cast<float*>(y.data()); }
  AlignedBuffer x, y;
};

void report(benchmark::State& state, std::int64_t weight_bytes, int tokens) {
  state.SetBytesProcessed(state.iterations() * weight_bytes);
  state.counters["FLOP/s"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * 2.0 * static_cast<double>(k * blocks * 16 * tokens),
      benchmark::Counter::kIsRate);
}

struct Form {
  const char* name;
  Lane16Codes codes;
  Lane16Scale scale;
  std::int64_t group;
  bool offset_codes;
};
constexpr Form forms[] = {
    {"nvfp4", Lane16Codes::nvfp4, Lane16Scale::f8_e4m3, 16, false},
    {"mxfp4", Lane16Codes::f4_e2m1, Lane16Scale::f8_e8m0, 32, false},
    {"int4_g128", Lane16Codes::int4, Lane16Scale::bf16, 128, true},
    {"int4_g128_zeros", Lane16Codes::int4_zeros, Lane16Scale::f16, 128, true},
    {"nf3", Lane16Codes::nf3, Lane16Scale::f8_e4m3, 32, false},
    {"ternary_g128", Lane16Codes::ternary, Lane16Scale::f16, 128, false},
    {"q4_k", Lane16Codes::q4_k, Lane16Scale::with_codes, 32, false},
    {"q6_k", Lane16Codes::q6_k, Lane16Scale::with_codes, 16, false},
    {"int8_g128", Lane16Codes::int8, Lane16Scale::bf16, 128, true},
    {"fp8_block", Lane16Codes::f8_e4m3, Lane16Scale::f32_blocks, 128, false},
};

void lane16(benchmark::State& state, Lane16KernelOf* kernel_of, const Form& form) {
  const auto tokens = static_cast<int>(state.range(0));
  const std::int64_t code_bytes = blocks * k / 16 * lane16_cell_bytes(form.codes);
  const std::int64_t groups = k / form.group;
  const AlignedBuffer codes = random_bytes(code_bytes);
  const AlignedBuffer scales = random_bytes(blocks * groups * 64);
  const AlignedBuffer zeros = random_bytes(blocks * groups * 16);
  Panels panels(tokens);
  const auto bytes = [](const AlignedBuffer& buffer) {
    return reinterpret_cast<const std::uint8_t*>(buffer.data());
  };
  const Lane16Blocks weight{.codes = bytes(codes),
                            .scales = bytes(scales),
                            .zeros = bytes(zeros),
                            .scale_format = form.scale,
                            .offset_codes = form.offset_codes,
                            .global_scale = 1.0F,
                            .blocks = blocks,
                            .k = k,
                            .group = form.group};
  Lane16Fn* kernel = kernel_of(form.codes);
  for ([[maybe_unused]] auto _ : state) kernel(weight, panels.in(), tokens, panels.out());
  report(state, code_bytes, tokens);
}

void plain_rows(benchmark::State& state, PlainRowsFn* kernel) {
  const auto tokens = static_cast<int>(state.range(0));
  const AlignedBuffer values = random_bytes(blocks * 16 * k * 2);
  Panels panels(tokens);
  const PlainRows weight{.values = reinterpret_cast<const std::uint8_t*>(values.data()),
                         .scale = 1.0F,
                         .rows = blocks * 16,
                         .k = k};
  for ([[maybe_unused]] auto _ : state) kernel(weight, panels.in(), tokens, panels.out());
  report(state, blocks * 16 * k * 2, tokens);
}

void register_all(IsaLevel most) {
  for (const IsaLevel each :
       {IsaLevel::avx512, IsaLevel::avx2, IsaLevel::neon, IsaLevel::generic}) {
    if (!isa_includes(most, each)) continue;
    const cpu::Kernels& kernels = cpu::kernels_of(each);
    const std::string level = isa_name(each);
    for (const int tokens : {1, 2, 4, 8, 12, 24}) {
      for (const Form& form : forms)
        benchmark::RegisterBenchmark((std::string(form.name) + "_" + level).c_str(), lane16,
                                     kernels.lane16, form)
            ->Arg(tokens);
      benchmark::RegisterBenchmark(("bf16_rows_" + level).c_str(), plain_rows, kernels.bf16_rows)
          ->Arg(tokens);
    }
  }
}

}  // namespace
}  // namespace fewbit

int main(int argc, char** argv) {
  const auto device = fewbit::detect_cpu();
  fewbit::register_all(device ? device->isa : fewbit::IsaLevel::generic);
  benchmark::Initialize(&argc, argv);  // --help ends there
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
