// SPDX-License-Identifier: Apache-2.0
#include "core/device_info.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/cpu_features.hpp"
#include "core/environment.hpp"

namespace fewbit {
namespace {

// A CPU with everything, on a system that saves everything.
X86Registers full_registers() {
  X86Registers registers;
  registers.leaf0_ecx = 0x444d4163;  // "cAMD"
  registers.leaf1_ecx = 1U << 12 | 1U << 27 | 1U << 28 | 1U << 29;
  registers.leaf7_ebx = 1U << 5 | 1U << 16 | 1U << 17 | 1U << 30 | 1U << 31;
  registers.leaf7_ecx = 1U << 1 | 1U << 11;
  registers.leaf7_edx = 1U << 22 | 1U << 24 | 1U << 25;
  registers.leaf7_1_eax = 1U << 5;
  registers.xcr0 = 0x600e7;
  registers.amx_permitted = true;
  return registers;
}

CpuFeatures full_features() { return features_from_registers(full_registers()); }

TEST(CpuFeatures, EachFactIsItsOwn) {
  const CpuFeatures all = full_features();
  CpuFeatures expected;
  expected.avx2 = expected.avx512 = expected.avx512_vnni = expected.avx512_vbmi = true;
  expected.avx512_bf16 = expected.avx512_fast_bf16 = expected.amx_tile = expected.amx_bf16 =
      expected.amx_int8 = true;
  EXPECT_EQ(all, expected);

  // Without one bit only its fact is gone.
  const auto without = [&](auto remove, bool CpuFeatures::*fact) {
    X86Registers registers = full_registers();
    remove(registers);
    CpuFeatures rest = all;
    rest.*fact = false;
    EXPECT_EQ(features_from_registers(registers), rest);
  };
  // But its speed goes with an instruction.
  X86Registers without_bf16 = full_registers();
  without_bf16.leaf7_1_eax = 0;
  CpuFeatures rest = all;
  rest.avx512_bf16 = rest.avx512_fast_bf16 = false;
  EXPECT_EQ(features_from_registers(without_bf16), rest);
  without([](X86Registers& r) { r.leaf7_ecx &= ~(1U << 11); }, &CpuFeatures::avx512_vnni);
  without([](X86Registers& r) { r.leaf7_ecx &= ~(1U << 1); }, &CpuFeatures::avx512_vbmi);
  without([](X86Registers& r) { r.leaf0_ecx = 0x6c65746e; },  // "ntel"
          &CpuFeatures::avx512_fast_bf16);
  without([](X86Registers& r) { r.leaf7_edx &= ~(1U << 22); }, &CpuFeatures::amx_bf16);
  without([](X86Registers& r) { r.leaf7_edx &= ~(1U << 25); }, &CpuFeatures::amx_int8);
  for (const int index : {16, 17, 30, 31}) {
    without([&](X86Registers& r) { r.leaf7_ebx &= ~(1U << index); }, &CpuFeatures::avx512);
  }
  for (const int index : {12, 29}) {
    without([&](X86Registers& r) { r.leaf1_ecx &= ~(1U << index); }, &CpuFeatures::avx2);
  }
}

TEST(CpuFeatures, WhatTheSystemDoesNotSaveIsNotThere) {
  X86Registers registers = full_registers();
  registers.xcr0 = 0x7;  // no AVX-512 and no AMX state
  CpuFeatures expected;
  expected.avx2 = true;
  EXPECT_EQ(features_from_registers(registers), expected);

  registers.xcr0 = 0;
  EXPECT_EQ(features_from_registers(registers), CpuFeatures{});

  registers = full_registers();
  registers.amx_permitted = false;
  expected = full_features();
  expected.amx_tile = expected.amx_bf16 = expected.amx_int8 = false;
  EXPECT_EQ(features_from_registers(registers), expected);
}

TEST(CpuFeatures, HwcapOfAarch64) {
  CpuFeatures expected;
  expected.neon = true;
  EXPECT_EQ(features_from_hwcap(0x3, 0), expected);
  expected.neon_bf16 = expected.neon_i8mm = true;
  EXPECT_EQ(features_from_hwcap(0x3, 0x6000), expected);
  EXPECT_EQ(best_isa(expected), IsaLevel::neon);
}

TEST(IsaLevel, BestNeedsEverythingItsKernelsUse) {
  CpuFeatures features = full_features();
  EXPECT_EQ(best_isa(features), IsaLevel::amx);
  features.amx_int8 = false;
  EXPECT_EQ(best_isa(features), IsaLevel::avx512);
  features.avx512_bf16 = false;
  EXPECT_EQ(best_isa(features), IsaLevel::avx512);
  features.avx512_vbmi = false;
  EXPECT_EQ(best_isa(features), IsaLevel::avx2);
  features.avx2 = false;
  EXPECT_EQ(best_isa(features), IsaLevel::generic);
}

TEST(IsaLevel, NamesReadBack) {
  for (const IsaLevel level :
       {IsaLevel::generic, IsaLevel::neon, IsaLevel::avx2, IsaLevel::avx512, IsaLevel::amx}) {
    EXPECT_EQ(*isa_from_name(isa_name(level)), level);
  }
  const auto unknown = isa_from_name("sse9");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(unknown.error().what,
            "unknown instruction set \"sse9\", expected one of generic, neon, avx2, avx512, amx");
}

TEST(IsaLevel, OfX86IncludeEachOtherAndNotNeon) {
  using enum IsaLevel;
  constexpr IsaLevel levels[] = {generic, neon, avx2, avx512, amx};
  constexpr bool runs[5][5] = {{true, false, false, false, false},  // a row a CPU
                               {true, true, false, false, false},
                               {true, false, true, false, false},
                               {true, false, true, true, false},
                               {true, false, true, true, true}};
  for (std::size_t cpu = 0; cpu < 5; ++cpu) {
    for (std::size_t level = 0; level < 5; ++level) {
      EXPECT_EQ(isa_includes(levels[cpu], levels[level]), runs[cpu][level])
          << isa_name(levels[level]) << " on " << isa_name(levels[cpu]);
    }
  }
}

TEST(IsaInUse, TheCapOnlyLowers) {
  CpuFeatures avx2;
  avx2.avx2 = true;
  EXPECT_EQ(*isa_in_use(full_features(), std::nullopt), IsaLevel::amx);
  EXPECT_EQ(*isa_in_use(full_features(), "avx2"), IsaLevel::avx2);
  EXPECT_EQ(*isa_in_use(avx2, "avx2"), IsaLevel::avx2);
  EXPECT_EQ(*isa_in_use(avx2, "generic"), IsaLevel::generic);

  const auto above = isa_in_use(avx2, "avx512");
  ASSERT_FALSE(above);
  EXPECT_EQ(above.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(above.error().message(),
            "FEWBIT_ISA: asked for avx512, but this machine has at most avx2");
  const auto foreign = isa_in_use(avx2, "neon");
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().message(),
            "FEWBIT_ISA: asked for neon, but this machine has at most avx2");
  const auto unknown = isa_in_use(avx2, "AVX2");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().where, "FEWBIT_ISA");
  EXPECT_NE(unknown.error().what.find("generic, neon, avx2, avx512, amx"), std::string::npos);
}

TEST(DescribeDevice, HasTheFeaturesOfItsLevelAndNoMore) {
  for (const char* name : {"generic", "neon", "avx2", "avx512", "amx"}) {
    const auto device = describe_device("cpu:" + std::string(name));
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_EQ(device->isa, *isa_from_name(name));
    EXPECT_EQ(best_isa(device->cpu), device->isa);
    EXPECT_EQ(device->kind, DeviceKind::cpu);
    EXPECT_EQ(device->built_for.front(), "generic");
  }
  for (const char* bad : {"cpu:", "cpu:sse9", "gpu", ""}) {
    const auto device = describe_device(bad);
    ASSERT_FALSE(device) << bad;
    EXPECT_EQ(device.error().code, ErrorCode::invalid_argument);
    const std::string known =
        "unknown device \"" + std::string(bad) +
        "\", expected one of cpu, cpu:generic, cpu:neon, cpu:avx2, cpu:avx512, cpu:amx, "
        "cuda, sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_120, sm_121, xpu";
    const std::string text = device.error().what;
    EXPECT_EQ(text.substr(0, known.size()), known);
    EXPECT_EQ(text.substr(known.size()), bad == std::string("gpu") ? "; did you mean cpu?"
                                         : bad == std::string("cpu:")
                                             ? "; did you mean cpu:generic?"
                                             : "");
  }
  EXPECT_EQ(describe_device("SM_90")->compute_capability, 90);
  EXPECT_NE(describe_device("sm90").error().what.find("; did you mean sm_90?"), std::string::npos);
}

TEST(DescribeDevice, GpusHaveTheCapabilityOfTheirName) {
  for (const int capability : {75, 80, 86, 87, 89, 90, 100, 103, 120, 121}) {
    const auto device = describe_device("sm_" + std::to_string(capability));
    ASSERT_TRUE(device) << device.error().message();
    EXPECT_EQ(device->kind, DeviceKind::cuda);
    EXPECT_EQ(device->compute_capability, capability);
    EXPECT_GT(device->sm_count, 0);
    EXPECT_GE(device->shared_memory_bytes, 64U * 1024);
    EXPECT_EQ(best_isa(device->cpu), IsaLevel::generic);
    EXPECT_TRUE(device_label(*device).starts_with("CUDA device described sm_"));
  }
  EXPECT_EQ(describe_device("xpu")->kind, DeviceKind::xpu);
  EXPECT_FALSE(describe_device("sm_90a"));
}

TEST(DetectCpu, DescribesThisMachine) {
  const auto device = detect_cpu();
  ASSERT_TRUE(device) << device.error().message();
  EXPECT_FALSE(device->name.empty());
  EXPECT_TRUE(has_isa(device->cpu, device->isa));
  EXPECT_GE(device->physical_cores, 1);
  EXPECT_GE(device->usable_threads, 1);
  EXPECT_LE(device->usable_threads, device->physical_cores);
  EXPECT_GT(device->memory_bytes, 0U);
  EXPECT_EQ(describe_device("cpu")->name, device->name);
#if defined(__x86_64__)
  // The compiler's runtime asks the same questions by itself.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  EXPECT_EQ(device->cpu.avx2, avx2);
  EXPECT_EQ(device->cpu.avx512_vbmi, __builtin_cpu_supports("avx512vbmi") != 0);
  EXPECT_EQ(device->cpu.avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
#endif
}

TEST(Environment, EmptyIsUnset) {
  const Environment read = read_environment([](const char* name) -> const char* {
    const std::string_view text = name;
    if (text == "FEWBIT_ISA") return "avx2";
    if (text == "FEWBIT_THREADS") return "";
    return nullptr;
  });
  EXPECT_EQ(read.isa, "avx2");
  EXPECT_EQ(read.threads, std::nullopt);
  EXPECT_EQ(read.backend, std::nullopt);
}

}  // namespace
}  // namespace fewbit
