// SPDX-License-Identifier: Apache-2.0
// The instruction-set levels that CPU kernels are tested at.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/device_info.hpp"

namespace fewbit::test {

inline constexpr IsaLevel kernel_levels[] = {IsaLevel::generic, IsaLevel::neon, IsaLevel::avx2,
                                             IsaLevel::avx512};

// Whether this CPU may run a level (FEWBIT_ISA caps it); generic always.
inline bool usable(IsaLevel level) {
  static const Result<DeviceInfo> device = detect_cpu();
  return level == IsaLevel::generic || (device && isa_includes(device->isa, level));
}

// Whether this CPU has dot products of bf16 pairs, whatever their speed.
inline bool has_bf16_dots() {
  static const Result<DeviceInfo> device = detect_cpu();
  return usable(IsaLevel::avx512) && device->cpu.avx512_bf16;
}
#define FEWBIT_SKIP_WITHOUT_DOTS()      \
  if (!::fewbit::test::has_bf16_dots()) \
  GTEST_SKIP() << "this CPU (or FEWBIT_ISA) has no AVX-512 BF16"

// A skipped level says so; generic is never skipped, so every run tests something.
#define FEWBIT_SKIP_UNUSABLE(level)   \
  if (!::fewbit::test::usable(level)) \
  GTEST_SKIP() << "this CPU (or FEWBIT_ISA) does not allow " << ::fewbit::isa_name(level)

inline std::string level_suffix(const ::testing::TestParamInfo<IsaLevel>& info) {
  return isa_name(info.param);
}

#define FEWBIT_INSTANTIATE_LEVELS(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Levels, suite, ::testing::ValuesIn(::fewbit::test::kernel_levels), \
                           ::fewbit::test::level_suffix)

}  // namespace fewbit::test
