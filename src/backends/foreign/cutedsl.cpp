// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/nvfp4_rules.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit {
namespace foreign {
namespace {

constexpr Capability capabilities[] = {family_100};
constexpr FunctionRule functions[] = {
    {Activation::silu}, {Activation::swigluoai}, {Activation::relu2}};

constexpr Rules rules = nvfp4::rules_for(capabilities, functions, nvfp4::whole_groups);

}  // namespace
}  // namespace foreign

const Backend cutedsl_backend = foreign::backend<foreign::rules>({
    .engine = Engine::vllm,
    .name = "flashinfer_cutedsl",
    .summary = "CuTe DSL NVFP4 of FlashInfer, W4A4",
    .layout = foreign::unknown_layout,
    .preparation = foreign::nothing<foreign::not_described>,
});

}  // namespace fewbit
