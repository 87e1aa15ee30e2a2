// SPDX-License-Identifier: Apache-2.0
// Each level runs kernels of its own: what the tests of a level test.
#include "backends/cpu/kernel_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/device_info.hpp"

namespace fewbit {
namespace {

constexpr DType plain_types[] = {DType::bf16, DType::f16, DType::f32};

TEST(KernelTable, EveryLevelOfThisBinaryHasKernelsOfItsOwn) {
  const auto device = detect_cpu();
  ASSERT_TRUE(device) << device.error().message();
  const cpu::Kernels& generic = cpu::kernels_of(IsaLevel::generic);
  EXPECT_EQ(generic.level, IsaLevel::generic);
  for (const std::string& name : device->built_for) {
    const auto level = isa_from_name(name);
    if (!level || *level == IsaLevel::generic) continue;  // a GPU's, or the one to differ from
    const cpu::Kernels& kernels = cpu::kernels_of(*level);
    EXPECT_EQ(kernels.level, *level);
    EXPECT_EQ(kernels.backend, "cpu_" + name);
    for (int codes = 0; codes < lane16_kinds; ++codes) {
      EXPECT_NE(kernels.lane16(Lane16Codes(codes)), generic.lane16(Lane16Codes(codes)))
          << name << ", kind " << codes;
    }
    for (const DType dtype : plain_types)
      EXPECT_NE(cpu::plain_rows(kernels, dtype), cpu::plain_rows(generic, dtype)) << name;
  }
}

// So no test of NEON is left out there unless FEWBIT_ISA asks for it.
TEST(KernelTable, NeonIsAnAArch64CpusLevelAndNoOthers) {
  const auto device = detect_cpu();
  ASSERT_TRUE(device) << device.error().message();
  const auto built = std::ranges::count(device->built_for, "neon");
#if defined(__aarch64__)
  EXPECT_EQ(best_isa(device->cpu), IsaLevel::neon);
  EXPECT_EQ(built, 1);
  EXPECT_EQ(cpu::kernels_of(IsaLevel::neon).level, IsaLevel::neon);
#else
  EXPECT_FALSE(has_isa(device->cpu, IsaLevel::neon));
  EXPECT_EQ(built, 0);
  const auto asked = isa_in_use(device->cpu, "neon");
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().message(),
            std::string("FEWBIT_ISA: asked for neon, but this machine has at most ") +
                isa_name(best_isa(device->cpu)));
#endif
}

}  // namespace
}  // namespace fewbit
