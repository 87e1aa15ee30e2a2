// SPDX-License-Identifier: Apache-2.0
// fewbit cpu: what this machine has, what will be used.
#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "core/huge_pages.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

struct Fact {
  const char* name;
  bool CpuFeatures::*member;
};

constexpr Fact facts[] = {
    {"avx2", &CpuFeatures::avx2},
    {"avx512", &CpuFeatures::avx512},
    {"avx512_vnni", &CpuFeatures::avx512_vnni},
    {"avx512_vbmi", &CpuFeatures::avx512_vbmi},
    {"avx512_bf16", &CpuFeatures::avx512_bf16},
    {"avx512_fast_bf16", &CpuFeatures::avx512_fast_bf16},
    {"amx_tile", &CpuFeatures::amx_tile},
    {"amx_bf16", &CpuFeatures::amx_bf16},
    {"amx_int8", &CpuFeatures::amx_int8},
    {"neon", &CpuFeatures::neon},
    {"neon_bf16", &CpuFeatures::neon_bf16},
    {"neon_i8mm", &CpuFeatures::neon_i8mm},
};

Json device_json(const DeviceInfo& device, int threads) {
  Json features;
  for (const Fact& fact : facts) features.set(fact.name, device.cpu.*fact.member);
  Json out;
  out.set("name", device.name);
  out.set("features", features);
  out.set("isa_in_use", isa_name(device.isa));
  out.set("isa_best", isa_name(best_isa(device.cpu)));
  out.set("built_for", list_json(device.built_for));
  out.set("physical_cores", std::int64_t{device.physical_cores});
  out.set("usable_threads", std::int64_t{device.usable_threads});
  out.set("threads_in_use", std::int64_t{threads});
  out.set("memory_bytes", device.memory_bytes);
  out.set("huge_pages", huge_page_setting());
  return out;
}

void print_device(const DeviceInfo& device, int threads) {
  std::string has;
  std::string lacks;
  for (const Fact& fact : facts) {
    std::string& list = device.cpu.*fact.member ? has : lacks;
    list += (list.empty() ? "" : " ") + std::string(fact.name);
  }
  std::string built;
  for (const std::string& level : device.built_for) built += (built.empty() ? "" : " ") + level;
  Table table({Align::left, Align::left});
  table.add({"cpu", device.name});
  table.add({"has", has.empty() ? "nothing beyond the baseline" : has});
  table.add({"lacks", lacks});
  table.add({"this binary holds", built});
  table.add({"level in use", fmt::format("{} (best here: {}; FEWBIT_ISA lowers it)",
                                         isa_name(device.isa), isa_name(best_isa(device.cpu)))});
  table.add({"threads",
             fmt::format("{} (physical cores {}, {} of them usable by affinity and cgroup quota; "
                         "FEWBIT_THREADS sets it)",
                         threads, device.physical_cores, device.usable_threads)});
  table.add({"memory", bytes_text(device.memory_bytes)});
  const std::string huge = huge_page_setting();
  table.add({"pages of 2 MiB", huge == "madvise" ? "on request (madvise), as packed weights do"
                               : huge.empty()    ? "not known here"
                                                 : huge});
  print_out("{}", Lines{table.text(0)});
}

Result<int> run_cpu(const CommonOptions& options) {
  FEWBIT_TRY(const DeviceInfo device, detect_cpu());
  FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(0));
  if (options.json) {
    print_json(device_json(device, pool->threads()));
  } else {
    print_device(device, pool->threads());
  }
  return exit_fine;
}

}  // namespace

void add_cpu(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CommonOptions>();
  CLI::App* command = app.add_subcommand("cpu", "What this machine has and what fewbit will use");
  add_json_option(*command, *options);
  command->footer("Examples:\n  fewbit cpu\n  FEWBIT_ISA=avx2 fewbit cpu --json");
  set_body(*command, *options, exit_code, [options] { return run_cpu(*options); });
}

}  // namespace fewbit::cli
