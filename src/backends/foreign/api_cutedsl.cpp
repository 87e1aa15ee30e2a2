// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {{100, 100}, {103, 103}, {107, 107}};
constexpr Divisor shapes[] = {{Divisor::Size::hidden, 16}, {Divisor::Size::intermediate, 64}};

constexpr Rules rules = [] {
  Rules all = nvfp4::rules_for(capabilities, nvfp4::silu_and_swigluoai, shapes);
  all.non_gated = false;
  all.exchanges = Set<TokenExchange>::all();
  return all;
}();

}  // namespace
}  // namespace foreign

const Backend api_cutedsl_backend = foreign::backend<foreign::rules>({
    .engine = Engine::flashinfer,
    .name = "cutedsl_nvfp4",
    .summary = "CuTe DSL NVFP4, called directly",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
