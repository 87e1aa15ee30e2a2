// SPDX-License-Identifier: Apache-2.0
// What the CPU has and the operating system allows, from the machine's own registers.
#pragma once

#include <cstdint>
#include <string>

#include "fewbit/selection.hpp"

namespace fewbit {

// The registers that decide the x86 facts.
struct X86Registers {
  std::uint32_t leaf0_ecx = 0;  // the last letters of the maker's name
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;      // states that the system saves; 0 when it does not use XSAVE
  bool amx_permitted = false;  // the kernel lets this process use tile data
};
// A fact is true when the CPU reports it and the system saves the registers it needs.
CpuFeatures features_from_registers(const X86Registers& registers);

// The words that Linux gives an aarch64 process.
CpuFeatures features_from_hwcap(std::uint64_t hwcap, std::uint64_t hwcap2);

// Of this machine. Asks the kernel for permission to use AMX where the CPU has it.
CpuFeatures detect_cpu_features();
// "AMD EPYC 9654 96-Core Processor"; the architecture's name when the CPU doesn't tell.
std::string detect_cpu_name();

}  // namespace fewbit
