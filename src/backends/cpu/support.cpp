// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/kernel_table.hpp"
#include "backends/cpu/matrix.hpp"
#include "backends/cpu/moe_workspace.hpp"
#include "backends/cpu/panels.hpp"
#include "core/counted.hpp"
#include "core/device_info.hpp"
#include "core/float_types.hpp"

namespace fewbit {
namespace cpu {
namespace {

void check_device(IsaLevel level, const DeviceInfo& device, std::vector<Refusal>& refusals) {
  if (device.kind != DeviceKind::cpu) {
    refusals.push_back({Reason::device, "a CPU", device_label(device)});
    return;
  }
  if (!isa_includes(device.isa, level)) {
    refusals.push_back({Reason::isa, isa_name(level), isa_name(device.isa)});
  }
}

const char* forms_text(IsaLevel level) { return level == IsaLevel::amx ? tile_forms : all_forms; }

// What tiles multiply: codes whose values are exact in bf16, and bf16.
void check_tiles(const char* which, const Scheme& weight, std::vector<Refusal>& refusals) {
  const auto form = form_of(weight);
  const bool blocks = form && form->in_blocks();
  const bool plain = !weight.scale && is_16_or_32_bit_float(weight.weight);
  if (!blocks && (weight.ggml_type || (!plain && weight.weight != DType::nf3))) return;
  refusals.push_back(
      {Reason::weight, fmt::format("{} {}", which, tile_forms), scheme_text(weight)});
}
void check_bf16(DType dtype, std::vector<Refusal>& refusals) {
  if (dtype == DType::bf16) return;
  refusals.push_back({Reason::dtype, "activations in bf16", std::string(dtype_name(dtype))});
}

void check_dtype(const char* which, DType dtype, std::vector<Refusal>& refusals) {
  if (is_16_or_32_bit_float(dtype)) return;
  refusals.push_back({Reason::dtype, fmt::format("{} in bf16, f16 or f32", which),
                      std::string(dtype_name(dtype))});
}

std::string variant(const Kernels& kernels, const MoeProblem& problem, std::int64_t tokens) {
  const std::int64_t each = even_tokens(problem, tokens);
  const OperandChoice operand = operand_choice(kernels, problem);
  if (operand.of(problem, tokens) == Operand::tiles) {
    const PanelCut cut = tile_cut(std::max(problem.hidden_size, problem.intermediate_size));
    return fmt::format("{}, {} at even routing, {} a weight pass", kernels.tile_products,
                       counted(std::min(each, cut.most), "token"), cut.panels(each));
  }
  return fmt::format("panels of {} at even routing, {} a weight pass{}",
                     counted(std::min(each, operand.panel_tokens), "token"),
                     operand.panel_cut().panels(each),
                     operand.many == Operand::tiles ? ", without tiles" : "");
}

// Codes of each kind, and beside them scales of a row or block of rows, and zero points.
constexpr const char* layouts =
    "cpu_f4_lane16, cpu_nf3_lane16, cpu_ternary_lane16, cpu_int4_lane16, cpu_int8_lane16, "
    "cpu_f8_lane16, cpu_q4_k_lane16, cpu_q6_k_lane16, cpu_f4_lane16_scales, cpu_nf3_lane16_scales, "
    "cpu_ternary_lane16_scales, "
    "cpu_int4_lane16_scales, cpu_int8_lane16_scales, cpu_f8_lane16_scales, "
    "cpu_f4_lane16_block_scales, cpu_ternary_lane16_block_scales, "
    "cpu_int4_lane16_block_scales, cpu_int8_lane16_block_scales, cpu_f8_lane16_block_scales, "
    "cpu_int4_lane16_zero_points, cpu_int8_lane16_zero_points, row_major";
// The same without NF3 and blocks of GGUF, which tiles do not take.
constexpr const char* tile_layouts =
    "cpu_f4_lane16, cpu_ternary_lane16, cpu_int4_lane16, cpu_int8_lane16, cpu_f8_lane16, "
    "cpu_f4_lane16_scales, cpu_ternary_lane16_scales, cpu_int4_lane16_scales, "
    "cpu_int8_lane16_scales, cpu_f8_lane16_scales, cpu_f4_lane16_block_scales, "
    "cpu_ternary_lane16_block_scales, cpu_int4_lane16_block_scales, "
    "cpu_int8_lane16_block_scales, cpu_f8_lane16_block_scales, cpu_int4_lane16_zero_points, "
    "cpu_int8_lane16_zero_points, row_major";

template <IsaLevel level>
constexpr Backend backend(const char* name, const char* summary, const char* built_for) {
  return {
      .name = name,
      .summary = summary,
      .layout = level == IsaLevel::amx ? tile_layouts : layouts,
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
            return open_moe(kernels_here(level), problem, plan, std::move(memory));
          },
      .unpack_expert = unpack_expert,
      .prepare_linear =
          [](const LinearProblem& problem, const QuantizedTensor& weight,
             const DeviceInfo& /*device*/, Executor& executor) {
            return prepare_linear(kernels_here(level), problem, weight, executor);
          },
      .variant =
          [](const MoeProblem& problem, const DeviceInfo& device, std::int64_t tokens) {
            return variant(kernels_of(level, device.cpu), problem, tokens);
          },
      .packed_bytes = Matrix::packed_bytes,
      .check_plan = check_plan,
  };
}

}  // namespace

std::vector<Refusal> moe_refusals(IsaLevel level, const MoeProblem& problem,
                                  const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  check_device(level, device, refusals);
  const char* taken = forms_text(level);
  form_refusals("gate and up", problem.gate_up, "hidden_size", problem.hidden_size, refusals,
                taken);
  form_refusals("down", problem.down, "intermediate_size", problem.intermediate_size, refusals,
                taken);
  if (level == IsaLevel::amx) {
    check_tiles("gate and up", problem.gate_up, refusals);
    check_tiles("down", problem.down, refusals);
    check_bf16(problem.activation_dtype, refusals);
  } else {
    check_dtype("activations", problem.activation_dtype, refusals);
  }
  // A share of the columns points into groups that it holds a part of.
  const auto down = form_of(problem.down);
  if (down && down->ordered && problem.parallel.tensor > 1) {
    refusals.push_back({Reason::weight, "down in act-order on one tensor rank",
                        fmt::format("{} ranks", problem.parallel.tensor)});
  }
  if (problem.two_order_experts > 0) {
    refusals.push_back({Reason::weight, "gate and up of an expert in one act-order",
                        fmt::format("{} experts with two", problem.two_order_experts)});
  }
  return refusals;
}

std::vector<Refusal> linear_refusals(IsaLevel level, const LinearProblem& problem,
                                     const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  check_device(level, device, refusals);
  form_refusals("weight", problem.weight, "k", problem.k, refusals, forms_text(level));
  if (level == IsaLevel::amx) {
    check_tiles("weight", problem.weight, refusals);
    check_bf16(problem.activation_dtype, refusals);
  } else {
    check_dtype("activations", problem.activation_dtype, refusals);
  }
  check_dtype("output", problem.output_dtype, refusals);
  return refusals;
}

}  // namespace cpu

const Backend cpu_amx_backend = cpu::backend<IsaLevel::amx>(
    "cpu_amx", "2, 4 and 8-bit weights packed, bf16 activations, AMX tiles", "amx");
const Backend cpu_avx512_backend = cpu::backend<IsaLevel::avx512>(
    "cpu_avx512", "2 to 8-bit weights packed and 16/32-bit weights in place, AVX-512", "avx512");
const Backend cpu_avx2_backend = cpu::backend<IsaLevel::avx2>(
    "cpu_avx2", "2 to 8-bit weights packed and 16/32-bit weights in place, AVX2", "avx2");
const Backend cpu_neon_backend = cpu::backend<IsaLevel::neon>(
    "cpu_neon", "2 to 8-bit weights packed and 16/32-bit weights in place, NEON", "neon");
const Backend cpu_generic_backend = cpu::backend<IsaLevel::generic>(
    "cpu_generic", "2 to 8-bit weights packed and 16/32-bit weights in place, any CPU", "generic");

}  // namespace fewbit
