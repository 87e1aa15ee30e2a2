// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_int4.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "backends/foreign/expert_matrices.hpp"
#include "backends/foreign/rules.hpp"
#include "core/checked.hpp"
#include "layout/prepare_cpu_int4.hpp"
#include "layout/prepare_trtllm.hpp"

namespace fewbit::foreign {
namespace {

Result<void> check_int4(const MoeProblem& problem) {
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    const WeightKind kind = weight_kind(*scheme);
    if (integers.contains(kind) && kind != WeightKind::int8) continue;
    return Error{ErrorCode::unsupported,
                 "the layout of " + scheme_text(*scheme) + ", expected 4-bit integers",
                 problem.where};
  }
  FEWBIT_TRY(check_middle_zero(problem.gate_up, problem.where));
  return check_middle_zero(problem.down, problem.where);
}

Result<void> check_no_zeros(const MoeProblem& problem, const char* kernels) {
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    if (!scheme->zero_points) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("stored zero points, which {} no place for", kernels), problem.where};
  }
  return {};
}

struct Buffer {
  const char* part;
  const char* layout;
  DType dtype;
  Shape shape;
  bool scales = false;
};
Result<void> add(MoePlan& plan, const Stack& stack, Buffer buffer) {
  return plan.add({.name = stack.name + "." + buffer.part,
                   .layout = buffer.layout,
                   .scale_format = buffer.scales ? std::string(dtype_name(buffer.dtype)) : "",
                   .source = scheme_text(stack.scheme()),
                   .dtype = buffer.dtype,
                   .shape = std::move(buffer.shape)});
}

Result<void> put_bias(const MoePlan& plan, const Stack& stack, DType dtype, ExpertSpans to) {
  if (!stack.biased() && plan.find(stack.name + ".bias") == nullptr) return {};
  FEWBIT_TRY(const OwnedTensor bias, bias_of(stack, dtype));
  return put(plan, to, stack.name + ".bias", bias.bytes);
}

Dims dims_of(const Stack& stack) { return {.n = stack.rows(), .k = stack.columns()}; }
std::int64_t group_size(const Stack& stack) { return stack.group() == 0 ? -1 : stack.group(); }

Result<void> plan_cpu(const MoeProblem& /*problem*/, const Stack& stack, MoePlan& plan) {
  const Dims d = dims_of(stack);
  const std::int64_t block = std::min<std::int64_t>(stack.group() == 0 ? d.k : stack.group(), 128);
  const Shape grid = {d.n / 32, stack.groups(), 32};
  FEWBIT_TRY(
      add(plan, stack,
          {"blocks", "cpu_int4_blocks", DType::u8, {d.n / 32, d.k / block, 16 * block + 128}}));
  FEWBIT_TRY(add(plan, stack, {"scales", "cpu_int4_groups", DType::f32, grid, true}));
  FEWBIT_TRY(add(plan, stack, {"zeros", "cpu_int4_groups", DType::i8, grid}));
  if (!stack.biased()) return {};
  return add(plan, stack, {"bias", "row_major", DType::f32, {d.n}});
}

Result<void> pack_cpu(const MoeProblem& problem, const MoePlan& plan, const Stack& stack,
                      ExpertSpans to) {
  FEWBIT_TRY(check_middle_zero(stack));
  FEWBIT_TRY(const OwnedTensor scales, scales_by_group(stack, problem.activation_dtype));
  const std::vector<CodeRows> parts = code_rows(stack);
  std::vector<std::int8_t> zeros;
  if (stack.has_zeros()) {
    FEWBIT_TRY(zeros, zero_rows(stack));
  }
  CpuInt4Output out;
  FEWBIT_TRY(out.blocks, planned_share(plan, to, stack.name + ".blocks"));
  FEWBIT_TRY(out.scales, planned_share(plan, to, stack.name + ".scales"));
  FEWBIT_TRY(out.zeros, planned_share(plan, to, stack.name + ".zeros"));
  FEWBIT_TRY(prepare_cpu_int4_rows({.parts = parts,
                                    .signed_codes = stack.scheme().weight == DType::i4,
                                    .scales = scales.tensor.view,
                                    .zeros = zeros},
                                   dims_of(stack), group_size(stack), out));
  return put_bias(plan, stack, DType::f32, to);
}

Result<void> plan_xpu(const MoeProblem& problem, const Stack& stack, MoePlan& plan) {
  const Dims d = dims_of(stack);
  FEWBIT_TRY(add(plan, stack, {"codes", "xpu_int4", DType::u8, {d.n, d.k / 2}}));
  FEWBIT_TRY(add(plan, stack,
                 {"scales", "row_major", problem.activation_dtype, {d.n, stack.groups()}, true}));
  if (!stack.biased()) return {};
  return add(plan, stack, {"bias", "row_major", problem.activation_dtype, {d.n}});
}

Result<void> pack_xpu(const MoeProblem& problem, const MoePlan& plan, const Stack& stack,
                      ExpertSpans to) {
  FEWBIT_TRY(check_middle_zero(stack));
  const std::int64_t group = stack.group() == 0 ? stack.columns() : stack.group();
  if (stack.columns() % group != 0) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("k is {}, expected a multiple of {}, the group size", stack.columns(), group),
        stack.name};
  }
  // Rows of codes and of scales are what canonical weights have.
  FEWBIT_TRY(const std::span<std::byte> codes, planned_share(plan, to, stack.name + ".codes"));
  FEWBIT_TRY(unsigned_rows(stack, codes));
  FEWBIT_TRY(const OwnedTensor scales, scales_by_row(stack, problem.activation_dtype));
  FEWBIT_TRY(put(plan, to, stack.name + ".scales", scales.bytes));
  return put_bias(plan, stack, problem.activation_dtype, to);
}

// As a swizzled grid is padded.
Result<void> plan_mxint4(const MoeProblem& /*problem*/, const Stack& stack, MoePlan& plan) {
  const Dims d = dims_of(stack);
  FEWBIT_TRY(add(plan, stack, {"codes", "trtllm_mxint4", DType::u8, {d.k / 256, d.n, 128}}));
  return add(plan, stack, {"scales", "swizzle_128x4", DType::bf16, {d.n * d.k / 32}, true});
}

struct RowSource {
  OwnedTensor words;
  OwnedTensor scales;
};
Result<RowSource> mxint4_source(const Stack& stack) {
  FEWBIT_TRY(check_middle_zero(stack));
  RowSource source;
  FEWBIT_TRY(source.words, row_words(stack));
  FEWBIT_TRY(source.scales, scales_by_row(stack, DType::bf16));
  return source;
}

// Both stacks of 4-bit integers, by one layout.
Result<MoePlan> plan_stacks(const MoeProblem& problem, const ExpertWeights& first,
                            Result<void> (*plan_stack)(const MoeProblem&, const Stack&, MoePlan&)) {
  MoePlan plan;
  plan.experts = problem.num_experts;
  FEWBIT_TRY(plan_stack(problem, w13_stack(first), plan));
  FEWBIT_TRY(plan_stack(problem, w2_stack(first), plan));
  return plan;
}

}  // namespace

Result<void> check_cpu_int4(const MoeProblem& problem) { return check_int4(problem); }

Result<void> check_xpu_int4(const MoeProblem& problem) {
  FEWBIT_TRY(check_int4(problem));
  return check_no_zeros(problem, "XPU kernels have");
}

Result<void> check_mxint4(const MoeProblem& problem) {
  FEWBIT_TRY(check_int4(problem));
  return check_no_zeros(problem, "MXINT4 has");
}

Result<MoePlan> plan_cpu_int4_experts(const MoeProblem& problem, const ExpertWeights& first) {
  FEWBIT_TRY(check_cpu_int4(problem));
  return plan_stacks(problem, first, plan_cpu);
}

Result<void> pack_cpu_int4_expert(const MoeProblem& problem, const MoePlan& plan,
                                  const ExpertWeights& expert, ExpertSpans to) {
  FEWBIT_TRY(pack_cpu(problem, plan, w13_stack(expert), to));
  return pack_cpu(problem, plan, w2_stack(expert), to);
}

Result<MoePlan> plan_xpu_int4_experts(const MoeProblem& problem, const ExpertWeights& first) {
  FEWBIT_TRY(check_xpu_int4(problem));
  return plan_stacks(problem, first, plan_xpu);
}

Result<void> pack_xpu_int4_expert(const MoeProblem& problem, const MoePlan& plan,
                                  const ExpertWeights& expert, ExpertSpans to) {
  FEWBIT_TRY(pack_xpu(problem, plan, w13_stack(expert), to));
  return pack_xpu(problem, plan, w2_stack(expert), to);
}

Result<MoePlan> plan_mxint4_experts(const MoeProblem& problem, const ExpertWeights& first) {
  FEWBIT_TRY(check_mxint4(problem));
  return plan_stacks(problem, first, plan_mxint4);
}

Result<void> pack_mxint4_expert(const MoeProblem& problem, const MoePlan& plan,
                                const ExpertWeights& expert, ExpertSpans to) {
  FEWBIT_TRY(const RowSource w13, mxint4_source(w13_stack(expert)));
  FEWBIT_TRY(const RowSource w2, mxint4_source(w2_stack(expert)));
  FEWBIT_TRY(const TrtllmResult result,
             prepare_trtllm_mxint4(
                 {.hidden_size = problem.hidden_size,
                  .intermediate_size = problem.intermediate_size,
                  .gemm1 = {.codes = w13.words.tensor.view, .scales = w13.scales.tensor.view},
                  .gemm2 = {.codes = w2.words.tensor.view, .scales = w2.scales.tensor.view}}));
  FEWBIT_TRY(put(plan, to, "w13.codes", result.gemm1.codes.view.bytes));
  FEWBIT_TRY(put(plan, to, "w13.scales", result.gemm1.scales.view.bytes));
  FEWBIT_TRY(put(plan, to, "w2.codes", result.gemm2.codes.view.bytes));
  return put(plan, to, "w2.scales", result.gemm2.scales.view.bytes);
}

}  // namespace fewbit::foreign
