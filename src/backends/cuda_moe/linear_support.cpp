// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/cuda_moe/linear.hpp"
#include "backends/cuda_moe/weight_cells.hpp"

namespace fewbit::cuda {
namespace {

// Sizes that one of the kernels takes.
void check_sizes(const LinearProblem& problem, const CellFormat& format, const DeviceInfo& device,
                 bool runs, std::vector<Refusal>& refusals) {
  const std::int64_t multiple = size_multiple(format);
  bool divisible = true;
  for (const auto& [name, size] : {std::pair("n", problem.n), std::pair("k", problem.k)}) {
    if (size % multiple == 0) continue;
    divisible = false;
    refusals.push_back(
        {Reason::shape, fmt::format("{} % {} = 0", name, multiple), std::to_string(size)});
  }
  const std::int64_t group = read_as(problem.weight).scale->granularity.cols;
  if (is_ordered(problem.weight) && problem.k % group != 0) {
    refusals.push_back({Reason::shape, fmt::format("k % {} = 0 with act-order", group),
                        std::to_string(problem.k)});
  }
  if (!divisible || !runs) return;
  const StreamCard card = card_of(device);
  const StreamShape shape = dense_shape(format.kind, 1, {.n = problem.n, .k = problem.k});
  if (plan_grouped(shape, card)) return;
  const auto plan = plan_stream(format, shape, card);
  if (plan) return;
  refusals.push_back({Reason::shape, "a layer that fits a thread block", plan.error().what});
}

}  // namespace

MoeProblem moe_problem_of(const LinearProblem& problem) {
  MoeProblem moe;
  moe.hidden_size = problem.n;
  moe.intermediate_size = problem.k;
  moe.num_experts = 1;
  moe.top_k = 1;
  moe.gate_up = problem.weight;
  moe.down = problem.weight;
  moe.activation_dtype = problem.activation_dtype;
  moe.max_tokens = problem.max_tokens;
  moe.where = problem.where;
  return moe;
}

std::vector<Refusal> linear_refusals(const LinearProblem& problem, const DeviceInfo& device) {
  std::vector<Refusal> refusals;
  const bool runs = check_device(device, refusals);
  weight_refusals("weights", problem.weight, refusals);
  const auto need = [&](const char* needs, DType has) {
    refusals.push_back({Reason::dtype, needs, std::string(dtype_name(has))});
  };
  check_activations(problem.activation_dtype, cells_of(problem.weight), refusals);
  const DType out = problem.output_dtype;
  if (out != DType::bf16 && out != DType::f16 && out != DType::f32) {
    need("results in bf16, f16 or f32", out);
  }
  if (const auto format = cells_of(problem.weight)) {
    check_sizes(problem, *format, device, runs, refusals);
  }
  return refusals;
}

}  // namespace fewbit::cuda
