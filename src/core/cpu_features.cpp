// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_features.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <array>
#include <cstring>

namespace fewbit {
namespace {

constexpr bool bit(std::uint64_t word, int index) { return ((word >> index) & 1U) != 0; }
constexpr bool all(std::uint64_t word, std::uint64_t mask) { return (word & mask) == mask; }

// XCR0: state components (Intel SDM volume 1, 13.1).
constexpr std::uint64_t sse_avx_state = 0x6;
constexpr std::uint64_t avx512_state = 0xe0;
constexpr std::uint64_t amx_state = 0x60000;
// Of "AuthenticAMD".
constexpr std::uint32_t amd_name_end = 0x444d4163;

}  // namespace

CpuFeatures features_from_registers(const X86Registers& r) {
  const bool ymm = bit(r.leaf1_ecx, 28) && all(r.xcr0, sse_avx_state);
  const bool zmm = ymm && all(r.xcr0, avx512_state);
  CpuFeatures features;
  const bool fma_f16c = bit(r.leaf1_ecx, 12) && bit(r.leaf1_ecx, 29);
  features.avx2 = ymm && bit(r.leaf7_ebx, 5) && fma_f16c;
  // F, DQ, BW, VL
  features.avx512 = zmm && bit(r.leaf7_ebx, 16) && bit(r.leaf7_ebx, 17) && bit(r.leaf7_ebx, 30) &&
                    bit(r.leaf7_ebx, 31);
  features.avx512_vbmi = zmm && bit(r.leaf7_ecx, 1);
  features.avx512_vnni = zmm && bit(r.leaf7_ecx, 11);
  features.avx512_bf16 = zmm && bit(r.leaf7_1_eax, 5);
  // Two a cycle on an EPYC of 2024, as FMA; on a Xeon of the fifth generation a quarter of its FMA.
  features.avx512_fast_bf16 = features.avx512_bf16 && r.leaf0_ecx == amd_name_end;
  const bool tiles = bit(r.leaf7_edx, 24) && all(r.xcr0, amx_state) && r.amx_permitted;
  features.amx_tile = tiles;
  features.amx_bf16 = tiles && bit(r.leaf7_edx, 22);
  features.amx_int8 = tiles && bit(r.leaf7_edx, 25);
  return features;
}

CpuFeatures features_from_hwcap(std::uint64_t hwcap, std::uint64_t hwcap2) {
  CpuFeatures features;
  features.neon = bit(hwcap, 1);         // HWCAP_ASIMD
  features.neon_i8mm = bit(hwcap2, 13);  // HWCAP2_I8MM
  features.neon_bf16 = bit(hwcap2, 14);  // HWCAP2_BF16
  return features;
}

#if defined(__x86_64__)
namespace {

struct CpuidResult {
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};

// All zero for a leaf that the CPU does not have.
CpuidResult cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  CpuidResult result;
  __get_cpuid_count(leaf, subleaf, &result.eax, &result.ebx, &result.ecx, &result.edx);
  return result;
}

// The instruction itself: its intrinsic would need a target region.
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<std::uint64_t>(high) << 32 | low;
}

bool ask_for_amx() {
  constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long tile_data = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

}  // namespace

CpuFeatures detect_cpu_features() {
  const CpuidResult leaf1 = cpuid(1, 0);
  const CpuidResult leaf7 = cpuid(7, 0);
  X86Registers registers;
  registers.leaf0_ecx = cpuid(0, 0).ecx;
  registers.leaf1_ecx = leaf1.ecx;
  registers.leaf7_ebx = leaf7.ebx;
  registers.leaf7_ecx = leaf7.ecx;
  registers.leaf7_edx = leaf7.edx;
  if (leaf7.eax >= 1) registers.leaf7_1_eax = cpuid(7, 1).eax;
  if (bit(leaf1.ecx, 27)) registers.xcr0 = read_xcr0();  // OSXSAVE
  const bool has_amx = bit(leaf7.edx, 24) && all(registers.xcr0, amx_state);
  registers.amx_permitted = has_amx && ask_for_amx();
  return features_from_registers(registers);
}

std::string detect_cpu_name() {
  std::array<char, 49> brand{};
  for (std::uint32_t i = 0; i < 3; ++i) {
    const CpuidResult part = cpuid(0x80000002U + i, 0);
    std::memcpy(brand.data() + 16 * i, &part, sizeof part);
  }
  std::string name = brand.data();
  name.erase(0, name.find_first_not_of(' '));
  name.erase(name.find_last_not_of(' ') + 1);
  return name.empty() ? "x86-64" : name;
}
#elif defined(__aarch64__)
CpuFeatures detect_cpu_features() {
  return features_from_hwcap(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
}
std::string detect_cpu_name() { return "aarch64"; }
#else
CpuFeatures detect_cpu_features() { return {}; }
std::string detect_cpu_name() { return "generic"; }
#endif

}  // namespace fewbit
