// SPDX-License-Identifier: Apache-2.0
// The backends, in order of preference.
#include <array>

#include "backends/cpu/cpu.hpp"
#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/reference/reference.hpp"
#include "select/backend.hpp"

namespace fewbit {

std::span<const Backend* const> all_backends() {
  static constexpr std::array backends{
      &cuda_moe_backend, &cpu_amx_backend,     &cpu_avx512_backend, &cpu_avx2_backend,
      &cpu_neon_backend, &cpu_generic_backend, &reference_backend,
  };
  return backends;
}

const Backend* find_backend(std::string_view name) {
  for (const Backend* backend : all_backends()) {
    if (backend->name == name) return backend;
  }
  for (const Backend* backend : foreign_backends()) {
    if (backend->name == name) return backend;
  }
  return nullptr;
}

}  // namespace fewbit
