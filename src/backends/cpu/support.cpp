// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/matrix.hpp"
#include "backends/cpu/panels.hpp"
#include "core/counted.hpp"
#include "core/device_info.hpp"
#include "core/float_types.hpp"
#include "layout/cpu_f4_lane16.hpp"

namespace fewbit {
namespace cpu {
namespace {

bool is_nvfp4(const Scheme& scheme) {
  return scheme.weight == DType::f4_e2m1 && scheme.scale && scheme.scale->dtype == DType::f8_e4m3 &&
         scheme.scale->granularity == Granularity{.rows = 1, .cols = CpuF4Lane16::group};
}

void check_device(IsaLevel level, const DeviceInfo& device, std::vector<Refusal>& refusals) {
  if (device.kind != DeviceKind::cpu) {
    refusals.push_back({Reason::device, "a CPU", device_label(device)});
    return;
  }
  if (std::ranges::find(device.built_for, isa_name(level)) == device.built_for.end()) {
    refusals.push_back({Reason::not_built, fmt::format("{} kernels", isa_name(level)),
                        fmt::format("a binary with {}", fmt::join(device.built_for, ", "))});
  }
  if (device.isa < level) {
    refusals.push_back({Reason::isa, isa_name(level), isa_name(device.isa)});
  }
}

// k_name: what the matrix's k is called in the problem.
void check_weight(const char* which, const Scheme& scheme, const char* k_name, std::int64_t k,
                  std::vector<Refusal>& refusals) {
  const bool ordered =
      scheme.zero_points || scheme.pre_quant_scale || scheme.act_order != ActOrder::none;
  const bool plain = !scheme.scale && is_16_or_32_bit_float(scheme.weight);
  if (ordered || !(plain || is_nvfp4(scheme))) {
    refusals.push_back(
        {Reason::weight,
         fmt::format("{} in bf16, f16, f32, or e2m1 with an e4m3 scale a group of 16", which),
         scheme_text(scheme)});
    return;
  }
  if (!plain && k % CpuF4Lane16::group != 0) {
    refusals.push_back(
        {Reason::shape, fmt::format("{} % {} = 0", k_name, CpuF4Lane16::group), std::to_string(k)});
  }
}

void check_dtype(const char* which, DType dtype, std::vector<Refusal>& refusals) {
  if (is_16_or_32_bit_float(dtype)) return;
  refusals.push_back({Reason::dtype, fmt::format("{} in bf16, f16 or f32", which),
                      std::string(dtype_name(dtype))});
}

// Tokens an expert when routing is even, rounded up.
std::string variant(const MoeProblem& problem, std::int64_t tokens) {
  const std::int64_t routes = tokens * problem.top_k;
  const std::int64_t active =
      std::clamp<std::int64_t>(routes, 1, std::max<std::int64_t>(problem.num_experts, 1));
  const std::int64_t each = (routes + active - 1) / active;
  return fmt::format("panels of {} at even routing, {} a weight pass",
                     counted(std::min<std::int64_t>(each, max_panel_tokens), "token"),
                     panels_for(std::max<std::int64_t>(each, 1)));
}

template <IsaLevel level>
constexpr Backend backend(const char* name, const char* summary, const char* built_for) {
  return {
      .name = name,
      .summary = summary,
      .layout = "cpu_f4_lane16, cpu_f4_lane16_scales, row_major",
      .built_for = built_for,
      .moe_refusals = [](const MoeProblem& problem,
                         const DeviceInfo& device) { return moe_refusals(level, problem, device); },
      .linear_refusals =
          [](const LinearProblem& problem, const DeviceInfo& device) {
            return linear_refusals(level, problem, device);
          },
      .plan_moe = [](const MoeProblem& problem,
                     const ExpertWeights& /*first*/) { return plan_moe(problem); },
      .pack_expert = pack_expert,
      .open_moe =
          [](const MoeProblem& problem, const MoePlan& plan, PreparedMemory memory) {
            return open_moe(level, problem, plan, std::move(memory));
          },
      .unpack_expert = unpack_expert,
      .prepare_linear =
          [](const LinearProblem& problem, const QuantizedTensor& weight,
             const DeviceInfo& /*device*/,
             Executor& executor) { return prepare_linear(level, problem, weight, executor); },
      .variant = variant,
      .packed_bytes = Matrix::packed_bytes,
  };
}

}  // namespace

std::vector<Refusal> moe_refusals(IsaLevel level, const MoeProblem& problem,
                                  const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  check_device(level, device, refusals);
  check_weight("gate and up", problem.gate_up, "hidden_size", problem.hidden_size, refusals);
  check_weight("down", problem.down, "intermediate_size", problem.intermediate_size, refusals);
  check_dtype("activations", problem.activation_dtype, refusals);
  if (problem.biases) refusals.push_back({Reason::weight, "experts without biases", "biases"});
  return refusals;
}

std::vector<Refusal> linear_refusals(IsaLevel level, const LinearProblem& problem,
                                     const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  check_device(level, device, refusals);
  check_weight("weight", problem.weight, "k", problem.k, refusals);
  check_dtype("activations", problem.activation_dtype, refusals);
  check_dtype("output", problem.output_dtype, refusals);
  return refusals;
}

}  // namespace cpu

const Backend cpu_avx512_backend = cpu::backend<IsaLevel::avx512>(
    "cpu_avx512", "NVFP4 packed and 16/32-bit weights in place, AVX-512", "avx512");
const Backend cpu_avx2_backend = cpu::backend<IsaLevel::avx2>(
    "cpu_avx2", "NVFP4 packed and 16/32-bit weights in place, AVX2", "avx2");
const Backend cpu_generic_backend = cpu::backend<IsaLevel::generic>(
    "cpu_generic", "NVFP4 packed and 16/32-bit weights in place, any CPU", "generic");

}  // namespace fewbit
