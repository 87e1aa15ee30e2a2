// SPDX-License-Identifier: Apache-2.0
// Packing 4-bit codes into 16 x 64 tiles, against a plain copy of the same bytes on the same
// threads. bytes_per_second counts bytes read and written.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "core/aligned_buffer.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/selection.hpp"
#include "layout/pack_b12x.hpp"
#include "layout/parallel_ranges.hpp"

namespace {

using fewbit::IsaLevel;

// Eight experts' gate and up of a layer with hidden size 4096 and intermediate size 1536.
constexpr fewbit::B12xPackJob job_shape{
    .experts = 8, .dims = {.n = 3072, .k = 4096}, .rows = {.rows = 3072, .shift = 1536}};

struct Buffers {
  fewbit::AlignedBuffer codes;
  fewbit::AlignedBuffer tiles;

  static Buffers make() {
    const auto bytes = static_cast<std::uint64_t>(job_shape.experts * job_shape.expert_bytes());
    Buffers buffers{.codes = fewbit::AlignedBuffer::allocate(bytes).value(),
                    .tiles = fewbit::AlignedBuffer::allocate(bytes).value()};
    std::memset(buffers.codes.data(), 0x5a, bytes);
    std::memset(buffers.tiles.data(), 0, bytes);
    return buffers;
  }
};

void report(benchmark::State& state, const Buffers& buffers) {
  const auto moved = 2 * static_cast<std::int64_t>(buffers.codes.size());
  state.SetBytesProcessed(state.iterations() * moved);
}

void copy(benchmark::State& state, int threads) {
  Buffers buffers = Buffers::make();
  const auto pool = fewbit::make_thread_pool(threads).value();
  const auto bytes = static_cast<std::int64_t>(buffers.codes.size());
  constexpr std::int64_t block = 1 << 16;
  for (auto _ : state) {
    fewbit::parallel_ranges(*pool, bytes / block, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(buffers.tiles.data() + begin * block, buffers.codes.data() + begin * block,
                  static_cast<std::size_t>((end - begin) * block));
    });
    benchmark::ClobberMemory();
  }
  report(state, buffers);
}

void repack(benchmark::State& state, IsaLevel isa, int threads) {
  Buffers buffers = Buffers::make();
  const auto pool = fewbit::make_thread_pool(threads).value();
  fewbit::B12xPackJob job = job_shape;
  job.isa = isa;
  for (auto _ : state) {
    fewbit::pack_b12x(job, buffers.codes.span(), buffers.tiles.span(), *pool);
    benchmark::ClobberMemory();
  }
  report(state, buffers);
}

void repack_in_place(benchmark::State& state, IsaLevel isa, int threads) {
  Buffers buffers = Buffers::make();
  const auto pool = fewbit::make_thread_pool(threads).value();
  fewbit::B12xPackJob job = job_shape;
  job.isa = isa;
  for (auto _ : state) {
    if (!fewbit::pack_b12x_in_place(job, buffers.codes.span(), *pool)) {
      state.SkipWithError("no scratch memory");
    }
    benchmark::ClobberMemory();
  }
  report(state, buffers);
}

template <class Function, class... Args>
void add(const std::string& name, Function function, Args... args) {
  benchmark::RegisterBenchmark(name.c_str(), function, args...)->UseRealTime();
}

void register_all(const fewbit::DeviceInfo& device) {
  for (const int threads : {1, 2}) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    add("memcpy" + suffix, copy, threads);
    for (const IsaLevel isa : {IsaLevel::generic, IsaLevel::avx2, IsaLevel::avx512}) {
      if (isa > device.isa) continue;
      std::string name = "b12x_packed/";
      name += fewbit::isa_name(isa);
      add(name + suffix, repack, isa, threads);
      add(name.append("/in_place").append(suffix), repack_in_place, isa, threads);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = fewbit::detect_cpu();
  if (!device) {
    std::fprintf(stderr, "bench_repack: %s\n", device.error().message().c_str());
    return 1;
  }
  register_all(*device);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
