// SPDX-License-Identifier: Apache-2.0
// The rules behind detect_cpu(), as pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fewbit/selection.hpp"

namespace fewbit {

// Whether these features hold all that the kernels of a level use.
bool has_isa(const CpuFeatures& features, IsaLevel level);

// Whether a CPU of level `isa` runs the kernels of a level: x86's levels include each other, NEON
// is another architecture's.
bool isa_includes(IsaLevel isa, IsaLevel level);

// best_isa, or the level named by `cap`, which may only lower it.
// Errors invalid_argument: unknown name (lists the known ones), a level that the machine lacks
// (names both).
Result<IsaLevel> isa_in_use(const CpuFeatures& features, const std::optional<std::string>& cap);

// "12.8" of 128.
std::string cuda_version_text(int version);
// "CPU some CPU", "CUDA device NVIDIA H100", "XPU Arc B580".
std::string device_label(const DeviceInfo& device);

// describe_device() but for "cuda", which asks the driver. built_for lacks what is for GPUs.
Result<DeviceInfo> describe_known_device(std::string_view text);

}  // namespace fewbit
