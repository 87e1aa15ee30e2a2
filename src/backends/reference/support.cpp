// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "backends/reference/reference.hpp"
#include "core/device_info.hpp"
#include "core/float_types.hpp"

namespace fewbit {
namespace {

// dequantize_rows() reads every canonical matrix; but it is given no vector for the activations.
bool readable(const Scheme& scheme) { return !scheme.pre_quant_scale; }

void check_device(const DeviceInfo& device, std::vector<Refusal>& refusals) {
  if (device.kind == DeviceKind::cpu) return;
  refusals.push_back({Reason::device, "a CPU", device_label(device)});
}

void check_weight(const char* which, const Scheme& scheme, std::vector<Refusal>& refusals) {
  if (readable(scheme)) return;
  refusals.push_back({Reason::weight,
                      std::string(which) + " without a scale for the activations (pre_quant_scale)",
                      scheme_text(scheme)});
}

void check_dtype(const char* which, DType dtype, std::vector<Refusal>& refusals) {
  if (is_16_or_32_bit_float(dtype)) return;
  refusals.push_back(
      {Reason::dtype, std::string(which) + " in bf16, f16 or f32", std::string(dtype_name(dtype))});
}

std::string variant(const MoeProblem& /*problem*/, const DeviceInfo& /*device*/,
                    std::int64_t /*tokens*/) {
  return "one weight row at a time";
}

// Buffers have a shape and a type, which blocks of GGUF do not.
Result<void> check_prepare(const MoeProblem& problem) {
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    if (!scheme->ggml_type) continue;
    return Error{ErrorCode::unsupported,
                 scheme_text(*scheme) +
                     " has no form with codes and scales apart that keeps every value (Q2_0, Q4_0, "
                     "Q8_0, TQ2_0, MXFP4 and NVFP4 have)",
                 problem.where};
  }
  return {};
}

}  // namespace

namespace reference {

std::vector<Refusal> moe_refusals(const MoeProblem& problem, const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  check_device(device, refusals);
  check_weight("gate and up", problem.gate_up, refusals);
  check_weight("down", problem.down, refusals);
  check_dtype("activations", problem.activation_dtype, refusals);
  return refusals;
}

std::vector<Refusal> linear_refusals(const LinearProblem& problem, const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  check_device(device, refusals);
  check_weight("weight", problem.weight, refusals);
  check_dtype("activations", problem.activation_dtype, refusals);
  check_dtype("output", problem.output_dtype, refusals);
  return refusals;
}

}  // namespace reference

const Backend reference_backend{
    .name = "reference",
    .summary =
        "every readable scheme without pre_quant_scale, every activation and shape, in double",
    .layout = "row_major",
    .built_for = "generic",
    .moe_refusals = reference::moe_refusals,
    .linear_refusals = reference::linear_refusals,
    .plan_moe = reference::plan_moe,
    .pack_expert = reference::pack_expert,
    .open_moe = reference::open_moe,
    .unpack_expert = reference::unpack_expert,
    .prepare_linear = reference::prepare_linear,
    .variant = variant,
    .accumulation = "f64",
    .check_prepare = check_prepare,
    .check_plan = reference::check_plan,
};

}  // namespace fewbit
