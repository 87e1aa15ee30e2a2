// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/cuda_moe/linear.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "core/device_info.hpp"

namespace fewbit {
namespace cuda {
namespace {

constexpr int built_capability = 90;

}  // namespace

bool check_device(const DeviceInfo& device, std::vector<Refusal>& refusals) {
  if (device.kind != DeviceKind::cuda) {
    refusals.push_back({Reason::device, "a CUDA device", device_label(device)});
    return false;
  }
  if (device.compute_capability == built_capability) return true;
  refusals.push_back({Reason::device, "compute capability 9.0",
                      fmt::format("compute capability {}.{}", device.compute_capability / 10,
                                  device.compute_capability % 10)});
  return false;
}

namespace {

// The cells that both matrices have.
std::optional<CellFormat> check_weights(const MoeProblem& problem, std::vector<Refusal>& refusals) {
  weight_refusals("gate and up", problem.gate_up, refusals);
  weight_refusals("down", problem.down, refusals);
  const std::optional<CellFormat> first = cells_of(problem.gate_up);
  const std::optional<CellFormat> second = cells_of(problem.down);
  if (!first || !second) return std::nullopt;
  if (*first == *second) return first;
  refusals.push_back({Reason::weight, "gate, up and down with scales of one kind",
                      scheme_text(problem.gate_up) + " and " + scheme_text(problem.down)});
  return std::nullopt;
}

// With act-order: whole groups, one order for gate and up, down's whole order.
void check_orders(const MoeProblem& problem, std::vector<Refusal>& refusals) {
  const std::tuple<const char*, std::int64_t, const Scheme&> sizes[] = {
      {"hidden_size", problem.hidden_size, problem.gate_up},
      {"intermediate_size", problem.intermediate_size, problem.down}};
  for (const auto& [name, size, scheme] : sizes) {
    if (!is_ordered(scheme)) continue;
    const std::int64_t group = scheme.scale->granularity.cols;
    if (size % group == 0) continue;
    refusals.push_back({Reason::shape, fmt::format("{} % {} = 0 with act-order", name, group),
                        std::to_string(size)});
  }
  if (is_ordered(problem.down) && problem.parallel.tensor > 1) {
    refusals.push_back({Reason::weight, "down in act-order on one tensor rank",
                        fmt::format("{} ranks", problem.parallel.tensor)});
  }
  if (problem.two_order_experts > 0) {
    refusals.push_back({Reason::weight, "gate and up of an expert in one act-order",
                        fmt::format("{} experts with two", problem.two_order_experts)});
  }
}

// Sizes that one of the kernels takes.
void check_sizes(const MoeProblem& problem, const CellFormat& format, const DeviceInfo& device,
                 bool runs, std::vector<Refusal>& refusals) {
  const std::int64_t group = size_multiple(format);
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"hidden_size", problem.hidden_size}, {"intermediate_size", problem.intermediate_size}};
  bool divisible = true;
  for (const auto& [name, size] : sizes) {
    if (size % group == 0) continue;
    divisible = false;
    refusals.push_back(
        {Reason::shape, fmt::format("{} % {} = 0", name, group), std::to_string(size)});
  }
  if (!divisible || !runs) return;
  const StreamCard card = card_of(device);
  const auto plan = plan_stream(format_of(problem), shape_of(problem, 1), card);
  if (plan_grouped(shape_of(problem, 1), card)) return;
  if (!plan)
    refusals.push_back({Reason::shape, "a layer that fits a thread block", plan.error().what});
}

std::string variant(const MoeProblem& problem, const DeviceInfo& device, std::int64_t tokens) {
  const bool streams =
      plan_stream(format_of(problem), shape_of(problem, 1), card_of(device)).has_value();
  if (!streams || runs_grouped(shape_of(problem, tokens))) {
    return fmt::format("grouped warpgroup products, items of up to {} rows",
                       grouped_item_width(shape_of(problem, tokens)));
  }
  return "streaming, one launch";
}

}  // namespace

CellFormat format_of(const MoeProblem& problem) {
  return cells_of(problem.gate_up).value_or(CellFormat{});
}

bool has_row_scales(const MoeProblem& problem) {
  const CellFormat format = format_of(problem);
  return format.kind == CellKind::f8 && format.f8 == F8Scales::row;
}

void check_activations(DType dtype, const std::optional<CellFormat>& format,
                       std::vector<Refusal>& refusals) {
  const bool half = format && takes_f16(format->kind);
  if (dtype == DType::bf16 || (half && dtype == DType::f16)) return;
  refusals.push_back({Reason::dtype, half ? "activations in bf16 or f16" : "activations in bf16",
                      std::string(dtype_name(dtype))});
}

ActivationType activation_type(DType dtype) {
  return dtype == DType::f16 ? ActivationType::f16 : ActivationType::bf16;
}

OutType out_type(DType dtype) {
  if (dtype == DType::f32) return OutType::f32;
  return dtype == DType::f16 ? OutType::f16 : OutType::bf16;
}

MoeF4Rule rule_of(const MoeProblem& problem) {
  MoeF4Rule rule;
  switch (problem.activation.kind) {
    case Activation::gelu:
      rule.activation = F4Activation::gelu;
      break;
    case Activation::gelu_tanh:
      rule.activation = F4Activation::gelu_tanh;
      break;
    case Activation::relu2:
      rule.activation = F4Activation::relu2;
      break;
    case Activation::swigluoai:
      rule.constants.alpha = problem.activation.alpha;
      rule.constants.beta = problem.activation.beta;
      break;
    case Activation::silu:
      break;
  }
  if (problem.activation.limit) rule.constants.limit = *problem.activation.limit;
  rule.router_weight_on_input = problem.router_weight_side == RouterWeightSide::input;
  return rule;
}

StreamShape shape_of(const MoeProblem& problem, std::int64_t tokens) {
  StreamShape shape{.tokens = tokens,
                    .top_k = problem.top_k,
                    .experts = problem.num_experts,
                    .hidden_size = problem.hidden_size,
                    .intermediate_size = problem.intermediate_size};
  const MoeF4Rule rule = rule_of(problem);
  shape.gated = f4_gated(rule.activation);
  shape.swiglu = rule.activation == F4Activation::swiglu;
  shape.plain = is_plain(rule) && !problem.biases;
  shape.kind = format_of(problem).kind;
  shape.ordered = is_ordered(problem.gate_up);
  return shape;
}

Dims half1(const MoeProblem& problem) {
  return {.n = shape_of(problem, 1).rows1(), .k = problem.hidden_size};
}
Dims half2(const MoeProblem& problem) {
  return {.n = problem.hidden_size / 2, .k = problem.intermediate_size};
}

std::vector<Refusal> moe_refusals(const MoeProblem& problem, const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  const bool runs = check_device(device, refusals);
  const std::optional<CellFormat> format = check_weights(problem, refusals);
  check_activations(problem.activation_dtype, format, refusals);
  if (format) {
    check_sizes(problem, *format, device, runs, refusals);
    check_orders(problem, refusals);
  }
  return refusals;
}

namespace {

std::optional<std::uint64_t> matrix_bytes(const Scheme& scheme, std::int64_t n, std::int64_t k) {
  if (n < 1 || k < 1) return std::nullopt;
  const std::optional<CellFormat> format = cells_of(scheme);
  if (!format) return std::nullopt;
  return static_cast<std::uint64_t>(packed_bytes(*format, {.n = (n + 1) / 2, .k = k}));
}

}  // namespace
}  // namespace cuda

const Backend cuda_moe_backend{
    .name = "cuda_moe",
    .summary =
        "NVFP4, MXFP4, INT4, INT8, FP8, MXFP8, NF3 and ternary experts on a CUDA device, every "
        "activation, biases; dense layers of the same",
    .layout =
        "cuda_f4_cells, cuda_int4_cells, cuda_int8_cells, cuda_ternary_cells, "
        "cuda_nf3_cells, cuda_f8_cells",
    .built_for = "sm_90a",
    .moe_refusals = cuda::moe_refusals,
    .linear_refusals = cuda::linear_refusals,
    .plan_moe = [](const MoeProblem& problem,
                   const ExpertWeights& /*first*/) { return cuda::plan_moe(problem); },
    .pack_expert = cuda::pack_expert,
    .open_moe = cuda::open_moe,
    .unpack_expert = nullptr,
    .prepare_linear = cuda::prepare_linear,
    .variant = cuda::variant,
    .packed_bytes = cuda::matrix_bytes,
    .check_plan = cuda::check_plan,
    .prepare_moe = cuda::prepare_on_device,
};

}  // namespace fewbit
