// SPDX-License-Identifier: Apache-2.0
#include "core/device_info.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include "core/ascii.hpp"
#include "core/cpu_features.hpp"
#include "core/cpu_topology.hpp"
#include "core/environment.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

struct NamedLevel {
  IsaLevel level;
  const char* name;
};
// Weakest first.
constexpr std::array<NamedLevel, 5> levels = {{{IsaLevel::generic, "generic"},
                                               {IsaLevel::neon, "neon"},
                                               {IsaLevel::avx2, "avx2"},
                                               {IsaLevel::avx512, "avx512"},
                                               {IsaLevel::amx, "amx"}}};

// A card of each capability with its public figures.
struct NamedGpu {
  const char* name;
  int capability;
  const char* card;
  int sm_count;
  std::uint64_t shared_kib;  // that one thread block can have
  std::uint64_t memory_gib;
};
constexpr std::array<NamedGpu, 10> gpus = {{{"sm_75", 75, "T4", 40, 64, 16},
                                            {"sm_80", 80, "A100", 108, 163, 80},
                                            {"sm_86", 86, "RTX 3090", 82, 99, 24},
                                            {"sm_87", 87, "Jetson AGX Orin", 16, 163, 64},
                                            {"sm_89", 89, "RTX 4090", 128, 99, 24},
                                            {"sm_90", 90, "H100", 132, 227, 80},
                                            {"sm_100", 100, "B200", 148, 227, 180},
                                            {"sm_103", 103, "B300", 148, 227, 270},
                                            {"sm_120", 120, "RTX 5090", 170, 99, 32},
                                            {"sm_121", 121, "GB10", 48, 99, 128}}};
constexpr std::uint64_t kib = 1024;

// "generic, neon, …", each with a prefix.
std::vector<std::string> level_names(const std::string& prefix) {
  std::vector<std::string> names;
  names.reserve(levels.size());
  for (const NamedLevel& level : levels) names.push_back(prefix + level.name);
  return names;
}

// "unknown device "x", expected one of a, b", and which of them may be meant.
Error unknown_name(const char* what, std::string_view name, const std::vector<std::string>& known) {
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  return Error{ErrorCode::invalid_argument,
               std::string("unknown ") + what + " " + quote(name) + ", expected one of " + list +
                   did_you_mean(name, known),
               ""};
}

std::vector<std::string> built_for() {
#if defined(__x86_64__)
  return {"generic", "avx2", "avx512", "amx"};
#elif defined(__aarch64__)
  return {"generic", "neon"};
#else
  return {"generic"};
#endif
}

// All that a level includes and nothing above it.
CpuFeatures features_of_level(IsaLevel level) {
  CpuFeatures features;
  features.neon = level == IsaLevel::neon;
  features.avx2 = level >= IsaLevel::avx2;
  features.avx512 = level >= IsaLevel::avx512;
  features.avx512_vnni = features.avx512;
  features.avx512_vbmi = features.avx512;
  features.amx_tile = level >= IsaLevel::amx;
  features.amx_bf16 = features.amx_tile;
  features.amx_int8 = features.amx_tile;
  features.avx512_bf16 = features.amx_tile;  // every CPU with AMX has it
  return features;
}

std::vector<std::string> known_devices() {
  std::vector<std::string> names = level_names("cpu:");
  names.insert(names.begin(), "cpu");
  names.emplace_back("cuda");
  for (const NamedGpu& gpu : gpus) names.emplace_back(gpu.name);
  names.emplace_back("xpu");
  return names;
}

// "cuda13" or "cuda12.9".
std::optional<int> cuda_version_of(std::string_view text) {
  constexpr std::string_view word = "cuda";
  if (!text.starts_with(word)) return std::nullopt;
  text.remove_prefix(word.size());
  int major = 0;
  int minor = 0;
  const char* const end = text.data() + text.size();
  auto at = std::from_chars(text.data(), end, major);
  if (at.ec == std::errc() && at.ptr != end && *at.ptr == '.') {
    at = std::from_chars(at.ptr + 1, end, minor);
  }
  const bool read = at.ec == std::errc() && at.ptr == end;
  if (!read || major < 1 || major > 99 || minor < 0 || minor > 9) return std::nullopt;
  return major * 10 + minor;
}

DeviceInfo described_gpu(const NamedGpu& gpu) {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.name = std::string("described ") + gpu.name + " (" + gpu.card + ")";
  device.compute_capability = gpu.capability;
  device.sm_count = gpu.sm_count;
  device.shared_memory_bytes = gpu.shared_kib * kib;
  device.memory_bytes = gpu.memory_gib * kib * kib * kib;
  device.built_for = built_for();
  device.described = true;
  return device;
}

// Figures of an Arc B580.
DeviceInfo described_xpu() {
  DeviceInfo device;
  device.kind = DeviceKind::xpu;
  device.name = "described xpu (Arc B580)";
  device.sm_count = 20;
  device.shared_memory_bytes = 128 * kib;
  device.memory_bytes = 12 * kib * kib * kib;
  device.built_for = built_for();
  device.described = true;
  return device;
}

DeviceInfo detect_machine() {
  const CpuTopology& topology = cpu_topology();
  DeviceInfo device;
  device.name = detect_cpu_name();
  device.cpu = detect_cpu_features();
  device.isa = best_isa(device.cpu);
  device.physical_cores = topology.physical_cores;
  device.usable_threads = usable_threads(topology);
  device.memory_bytes = topology.memory_bytes;
  device.built_for = built_for();
  return device;
}

}  // namespace

const char* isa_name(IsaLevel level) {
  for (const NamedLevel& named : levels) {
    if (named.level == level) return named.name;
  }
  return "unknown";
}

Result<IsaLevel> isa_from_name(std::string_view name) {
  for (const NamedLevel& named : levels) {
    if (named.name == name) return named.level;
  }
  return unknown_name("instruction set", name, level_names(""));
}

bool has_isa(const CpuFeatures& features, IsaLevel level) {
  const bool avx512 =
      features.avx2 && features.avx512 && features.avx512_vnni && features.avx512_vbmi;
  switch (level) {
    case IsaLevel::generic:
      return true;
    case IsaLevel::neon:
      return features.neon;
    case IsaLevel::avx2:
      return features.avx2;
    case IsaLevel::avx512:
      return avx512;
    case IsaLevel::amx:
      return avx512 && features.amx_tile && features.amx_bf16 && features.amx_int8;
  }
  return false;
}

bool isa_includes(IsaLevel isa, IsaLevel level) {
  if (level == IsaLevel::neon || isa == IsaLevel::neon) {
    return level == isa || level == IsaLevel::generic;
  }
  return level <= isa;
}

IsaLevel best_isa(const CpuFeatures& features) {
  IsaLevel best = IsaLevel::generic;
  for (const NamedLevel& named : levels) {
    if (has_isa(features, named.level)) best = named.level;
  }
  return best;
}

Result<IsaLevel> isa_in_use(const CpuFeatures& features, const std::optional<std::string>& cap) {
  const IsaLevel best = best_isa(features);
  if (!cap) return best;
  Result<IsaLevel> level = isa_from_name(*cap);
  if (!level) return Error{level.error().code, level.error().what, "FEWBIT_ISA"};
  if (!has_isa(features, *level)) {
    return Error{ErrorCode::invalid_argument,
                 std::string("asked for ") + isa_name(*level) + ", but this machine has at most " +
                     isa_name(best),
                 "FEWBIT_ISA"};
  }
  return level;
}

Result<DeviceInfo> detect_cpu() {
  static const DeviceInfo machine = detect_machine();
  DeviceInfo device = machine;
  FEWBIT_TRY(device.isa, isa_in_use(device.cpu, environment().isa));
  return device;
}

Result<DeviceInfo> describe_known_device(std::string_view asked) {
  const std::string text = lower_ascii(asked);
  if (text == "cpu") return detect_cpu();
  constexpr std::string_view prefix = "cpu:";
  if (text.starts_with(prefix)) {
    if (const auto level = isa_from_name(std::string_view(text).substr(prefix.size()))) {
      DeviceInfo device;
      device.name = "described " + text;
      device.cpu = features_of_level(*level);
      device.isa = *level;
      device.built_for = built_for();
      device.described = true;
      return device;
    }
  }
  for (const NamedGpu& gpu : gpus) {
    if (text == gpu.name) return described_gpu(gpu);
    const std::string with_version = std::string(gpu.name) + ":";
    if (!text.starts_with(with_version)) continue;
    const std::string_view version = std::string_view(text).substr(with_version.size());
    const std::optional<int> cuda = cuda_version_of(version);
    if (!cuda) {
      return Error{ErrorCode::invalid_argument,
                   "unknown CUDA version " + quote(version) + " of " + gpu.name +
                       ", expected as cuda13 or cuda12.9",
                   ""};
    }
    DeviceInfo device = described_gpu(gpu);
    device.cuda_version = *cuda;
    device.name += " with CUDA " + cuda_version_text(*cuda);
    return device;
  }
  if (text == "xpu") return described_xpu();
  return unknown_name("device", asked, known_devices());
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 10) + "." + std::to_string(version % 10);
}

std::string device_label(const DeviceInfo& device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return "CPU " + device.name;
    case DeviceKind::cuda:
      return "CUDA device " + device.name;
    case DeviceKind::xpu:
      return "XPU " + device.name;
  }
  return device.name;
}

}  // namespace fewbit
