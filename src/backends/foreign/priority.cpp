// SPDX-License-Identifier: Apache-2.0
// In which order each engine asks its backends, as a table: the first row that fits the layer and
// the device counts. docs/backends.md has the sources.
#include <algorithm>

#include "backends/foreign/foreign.hpp"
#include "backends/foreign/rules.hpp"

namespace fewbit {
namespace foreign {
namespace {

using Order = std::span<const Backend* const>;
constexpr const char* not_in_order = "not among what the engine tries for such a layer";

constexpr const Backend* vllm_int[] = {&trtllm_mxint4_backend,  &marlin_backend,
                                       &batched_marlin_backend, &triton_wna16_backend,
                                       &humming_backend,        &int4_emulation_backend};
constexpr const Backend* vllm_int_cpu[] = {&cpu_int4_backend};
constexpr const Backend* vllm_int_xpu[] = {&xpu_int4_backend};
constexpr const Backend* vllm_nvfp4[] = {
    &trtllm_nvfp4_backend, &cutedsl_backend, &cutedsl_batched_backend, &flashinfer_cutlass_backend,
    &cutlass_fp4_backend,  &marlin_backend,  &humming_backend,         &nvfp4_emulation_backend};
// No other of them runs there.
constexpr const Backend* vllm_nvfp4_xpu[] = {&nvfp4_emulation_backend};
constexpr const Backend* vllm_mxfp4[] = {&trtllm_mxfp4_backend,       &oai_triton_backend,
                                         &flashinfer_cutlass_backend, &marlin_backend,
                                         &batched_marlin_backend,     &mx_emulation_backend};
constexpr const Backend* vllm_mxfp4_cpu[] = {&cpu_mxfp4_backend};
constexpr const Backend* vllm_mxfp4_xpu[] = {&xpu_mxfp4_backend, &mx_emulation_backend};
constexpr const Backend* vllm_mxfp4_deepseek_v4_xpu[] = {&xpu_mxfp4_backend};
// With activations asked for, only the kernels that take them stay.
constexpr const Backend* vllm_mxfp4_quantized[] = {
    &trtllm_mxfp4_backend, &flashinfer_cutlass_backend, &mx_emulation_backend};
constexpr const Backend* vllm_mxfp4_deepseek_v4[] = {&trtllm_mxfp4_backend, &deep_gemm_fp4_backend,
                                                     &marlin_backend, &batched_marlin_backend};
constexpr const Backend* vllm_fp8[] = {&trtllm_fp8_backend,    &flashinfer_cutlass_backend,
                                       &deep_gemm_backend,     &cutlass_fp8_backend,
                                       &triton_backend,        &marlin_backend,
                                       &humming_backend,       &batched_deep_gemm_backend,
                                       &batched_triton_backend};
// The platform's own first; of the others Triton runs on an XPU too.
constexpr const Backend* vllm_fp8_cpu[] = {&cpu_fp8_backend};
constexpr const Backend* vllm_fp8_xpu[] = {&xpu_fp8_backend, &triton_backend,
                                           &batched_triton_backend};
constexpr const Backend* vllm_fp8_hopper_blocks[] = {
    &triton_backend,    &trtllm_fp8_backend,        &flashinfer_cutlass_backend,
    &deep_gemm_backend, &cutlass_fp8_backend,       &marlin_backend,
    &humming_backend,   &batched_deep_gemm_backend, &batched_triton_backend};
constexpr const Backend* vllm_fp8_hopper_blocks_ep[] = {&flashinfer_cutlass_backend,
                                                        &trtllm_fp8_backend,
                                                        &deep_gemm_backend,
                                                        &cutlass_fp8_backend,
                                                        &triton_backend,
                                                        &marlin_backend,
                                                        &humming_backend,
                                                        &batched_deep_gemm_backend,
                                                        &batched_triton_backend};
constexpr const Backend* vllm_plain[] = {&trtllm_bf16_backend, &flashinfer_cutlass_backend,
                                         &triton_backend, &batched_triton_backend};
// With data parallel FlashInfer's CUTLASS goes last.
constexpr const Backend* vllm_plain_data_parallel[] = {
    &trtllm_bf16_backend, &triton_backend, &batched_triton_backend, &flashinfer_cutlass_backend};
constexpr const Backend* vllm_plain_cpu[] = {&cpu_plain_backend};
constexpr const Backend* vllm_plain_xpu[] = {&xpu_plain_backend};
constexpr const Backend* vllm_plain_triton_first[] = {
    &triton_backend, &batched_triton_backend, &trtllm_bf16_backend, &flashinfer_cutlass_backend};

constexpr const Backend* sglang_any[] = {&sglang_marlin_backend, &sglang_trtllm_mxint4_backend};
constexpr const Backend* flashinfer_any[] = {&api_trtllm_fp4_backend, &api_trtllm_mxint4_backend,
                                             &api_cutedsl_backend, &api_cutlass_backend,
                                             &api_b12x_backend};

bool any_layer(const MoeProblem& /*problem*/) { return true; }
bool deepseek_v4(const MoeProblem& problem) { return problem.routing == Routing::sqrt_softplus; }
bool asks_for_activations(const MoeProblem& problem) {
  return activation_kind(problem.gate_up) != ActivationKind::none;
}
bool over_ranks(const MoeProblem& problem) { return problem.parallel.expert > 1; }
// Tokens go to other ranks only where these have tokens of their own.
bool data_parallel(const MoeProblem& problem) {
  return problem.parallel.exchange != TokenExchange::none;
}
bool clamped_function(const MoeProblem& problem) {
  return problem.activation.kind == Activation::swigluoai;
}

struct Row {
  Engine engine;
  DeviceKind device;
  Set<WeightKind> weights;
  Capability capability;
  bool (*applies)(const MoeProblem&);
  Order order;
};
constexpr Set<WeightKind> any_weights = Set<WeightKind>::all();
constexpr Row rows[] = {
    {Engine::vllm, DeviceKind::cpu, integers, any_capability, any_layer, vllm_int_cpu},
    {Engine::vllm, DeviceKind::cpu, {WeightKind::mxfp4}, any_capability, any_layer, vllm_mxfp4_cpu},
    {Engine::vllm, DeviceKind::cpu, any_fp8, any_capability, any_layer, vllm_fp8_cpu},
    {Engine::vllm, DeviceKind::cpu, {WeightKind::plain}, any_capability, any_layer, vllm_plain_cpu},
    {Engine::vllm, DeviceKind::xpu, integers, any_capability, any_layer, vllm_int_xpu},
    {Engine::vllm,
     DeviceKind::xpu,
     {WeightKind::mxfp4},
     any_capability,
     deepseek_v4,
     vllm_mxfp4_deepseek_v4_xpu},
    {Engine::vllm, DeviceKind::xpu, {WeightKind::mxfp4}, any_capability, any_layer, vllm_mxfp4_xpu},
    {Engine::vllm, DeviceKind::xpu, {WeightKind::nvfp4}, any_capability, any_layer, vllm_nvfp4_xpu},
    {Engine::vllm, DeviceKind::xpu, any_fp8, any_capability, any_layer, vllm_fp8_xpu},
    {Engine::vllm, DeviceKind::xpu, {WeightKind::plain}, any_capability, any_layer, vllm_plain_xpu},
    {Engine::vllm, DeviceKind::cuda, integers, any_capability, any_layer, vllm_int},
    {Engine::vllm, DeviceKind::cuda, {WeightKind::nvfp4}, any_capability, any_layer, vllm_nvfp4},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::mxfp4},
     any_capability,
     deepseek_v4,
     vllm_mxfp4_deepseek_v4},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::mxfp4},
     any_capability,
     asks_for_activations,
     vllm_mxfp4_quantized},
    {Engine::vllm, DeviceKind::cuda, {WeightKind::mxfp4}, any_capability, any_layer, vllm_mxfp4},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::fp8_block},
     {90, 90},
     over_ranks,
     vllm_fp8_hopper_blocks_ep},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::fp8_block},
     {90, 90},
     any_layer,
     vllm_fp8_hopper_blocks},
    {Engine::vllm, DeviceKind::cuda, any_fp8, any_capability, any_layer, vllm_fp8},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::plain},
     {90, 90},
     any_layer,
     vllm_plain_triton_first},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::plain},
     any_capability,
     clamped_function,
     vllm_plain_triton_first},
    {Engine::vllm,
     DeviceKind::cuda,
     {WeightKind::plain},
     any_capability,
     data_parallel,
     vllm_plain_data_parallel},
    {Engine::vllm, DeviceKind::cuda, {WeightKind::plain}, any_capability, any_layer, vllm_plain},
    {Engine::sglang, DeviceKind::cuda, any_weights, any_capability, any_layer, sglang_any},
    {Engine::flashinfer, DeviceKind::cuda, any_weights, any_capability, any_layer, flashinfer_any},
};

Order order_of(Engine engine, const MoeProblem& problem, const DeviceInfo& device) {
  const WeightKind weight = weight_kind(problem.gate_up);
  for (const Row& row : rows) {
    if (row.engine == engine && row.device == device.kind && row.weights.contains(weight) &&
        row.capability.contains(device.compute_capability) && row.applies(problem)) {
      return row.order;
    }
  }
  return {};
}

}  // namespace
}  // namespace foreign

std::span<const Backend* const> foreign_backends() {
  static constexpr const Backend* backends[] = {
      &marlin_backend,
      &batched_marlin_backend,
      &humming_backend,
      &trtllm_nvfp4_backend,
      &trtllm_mxfp4_backend,
      &trtllm_mxint4_backend,
      &trtllm_fp8_backend,
      &trtllm_bf16_backend,
      &flashinfer_cutlass_backend,
      &cutedsl_backend,
      &cutedsl_batched_backend,
      &b12x_backend,
      &cutlass_fp4_backend,
      &cutlass_fp8_backend,
      &deep_gemm_backend,
      &batched_deep_gemm_backend,
      &deep_gemm_fp4_backend,
      &triton_backend,
      &batched_triton_backend,
      &triton_wna16_backend,
      &oai_triton_backend,
      &oai_triton_unfused_backend,
      &int4_emulation_backend,
      &nvfp4_emulation_backend,
      &mx_emulation_backend,
      &cpu_int4_backend,
      &cpu_mxfp4_backend,
      &cpu_fp8_backend,
      &cpu_plain_backend,
      &xpu_int4_backend,
      &xpu_mxfp4_backend,
      &xpu_fp8_backend,
      &xpu_plain_backend,
      &sglang_marlin_backend,
      &sglang_trtllm_mxint4_backend,
      &api_trtllm_fp4_backend,
      &api_trtllm_mxint4_backend,
      &api_cutedsl_backend,
      &api_cutlass_backend,
      &api_b12x_backend,
  };
  return backends;
}

std::vector<RankedBackend> backends_of(Engine engine, const MoeProblem& problem,
                                       const DeviceInfo& device) {
  std::vector<RankedBackend> ranked;
  if (engine == Engine::fewbit) {
    for (const Backend* backend : all_backends()) ranked.push_back({backend, ""});
    return ranked;
  }
  const foreign::Order order = foreign::order_of(engine, problem, device);
  for (const Backend* backend : order) ranked.push_back({backend, backend->only_forced});
  for (const Backend* backend : foreign_backends()) {
    if (backend->engine != engine || std::ranges::find(order, backend) != order.end()) continue;
    const bool said = *backend->only_forced != '\0';
    ranked.push_back({backend, said ? backend->only_forced : foreign::not_in_order});
  }
  return ranked;
}

}  // namespace fewbit
