// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Rules rules = [] {
  Rules all = nvfp4::rules_for({}, {}, nvfp4::whole_groups);
  all.dtypes = both_16_bit;
  all.devices = triton_devices;
  all.experts = ExpertSpread::any;
  all.exchanges = {TokenExchange::none, TokenExchange::allgather,
                   TokenExchange::deepep_high_throughput};
  return all;
}();

}  // namespace
}  // namespace foreign

const Backend nvfp4_emulation_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "vllm_emulation_nvfp4",
    .summary = "decodes NVFP4 to 16 bits, activations rounded to NVFP4",
    .preparation = foreign::nothing<foreign::reads_rows>,
});

}  // namespace fewbit
