// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_trtllm_fp4.hpp"

#include "backends/foreign/undo.hpp"
#include "core/checked.hpp"
#include "layout/prepare_trtllm.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit::foreign {
namespace {

Fp4Sizes sizes_of(const TrtllmFp4Form& form, const MoeProblem& problem) {
  const bool gated = gating_of(problem) == Gating::gated;
  return padded_sizes(problem, form.hidden, gated ? form.intermediate : form.ungated_intermediate);
}

// f32 values in the rows of the matrix.
Result<OwnedTensor> bias_rows(const Stack& stack, TrtllmRows rows) {
  FEWBIT_TRY(const OwnedTensor bias,
             bias_of(stack, DType::f32, rows.rows / std::ssize(stack.parts)));
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::f32, {rows.rows}));
  for (std::int64_t n = 0; n < rows.rows; ++n) {
    std::ranges::copy(bias.bytes.subspan(static_cast<std::size_t>(n) * 4, 4),
                      out.bytes.begin() + rows.place(n) * 4);
  }
  return out;
}

Result<void> put_bias(const MoePlan& plan, const Stack& stack, TrtllmRows rows, ExpertSpans to) {
  const std::string name = stack.name + ".bias";
  if (!stack.biased() && plan.find(name) == nullptr) return {};
  FEWBIT_TRY(const OwnedTensor bias, bias_rows(stack, rows));
  return put(plan, to, name, bias.bytes);
}

TrtllmRows rows_of(Dims dims, Gating gating) { return {.rows = dims.n, .gating = gating}; }

// Matrix "w13" or "w2".
Result<void> plan_matrix(const MoeProblem& problem, const Stack& stack, Dims d, MoePlan& plan) {
  const DType scale = stack.scheme().scale->dtype;
  const std::int64_t groups = round_up<std::int64_t>(d.k / fp4_group(problem), 4);
  const std::string codes = stack.name + ".codes";
  const std::string scales = stack.name + ".scales";
  FEWBIT_TRY(add_part(plan, stack.scheme(),
                      {codes.c_str(), "trtllm_rows", "", DType::u8, {d.n, d.k / 2}}));
  FEWBIT_TRY(add_part(
      plan, stack.scheme(),
      {scales.c_str(), "trtllm_rows_128x4", std::string(dtype_name(scale)), scale, {d.n, groups}}));
  if (!stack.biased()) return {};
  const std::string bias = stack.name + ".bias";
  return add_part(plan, stack.scheme(), {bias.c_str(), "trtllm_rows", "", DType::f32, {d.n}});
}

template <Gating gating>
Result<void> undo_matrix(const MoePlan& plan, const std::string& name, Dims dims,
                         std::int64_t group, const Fp4Matrix& source, ConstExpertSpans from) {
  using Codes = TrtllmCodes<4, gating, TrtllmBlock::rows_32>;
  using Scales = TrtllmScales<8, gating, TrtllmBlock::rows_32>;
  FEWBIT_TRY(compare_undone<Codes>(plan, from, name + ".codes", dims, source.codes.bytes));
  return compare_undone<Scales>(plan, from, name + ".scales", {.n = dims.n, .k = dims.k / group},
                                source.scales.bytes);
}

}  // namespace

Result<void> check_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem) {
  FEWBIT_TRY(check_kind(problem, form.kinds, form.expected));
  return check_one_global(problem);
}

Result<MoePlan> plan_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem,
                                const ExpertWeights& first) {
  FEWBIT_TRY(check_trtllm_fp4(form, problem));
  const Fp4Sizes sizes = sizes_of(form, problem);
  MoePlan plan;
  plan.experts = problem.num_experts;
  FEWBIT_TRY(plan_matrix(problem, w13_stack(first, FirstPart::up), sizes.w13(), plan));
  FEWBIT_TRY(plan_matrix(problem, w2_stack(first), sizes.w2(), plan));
  FEWBIT_TRY(plan_globals(problem, plan));
  return plan;
}

Result<void> pack_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert, ExpertSpans to) {
  const Fp4Sizes sizes = sizes_of(form, problem);
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, FirstPart::up));
  TrtllmFp4Input input;
  input.hidden_size = sizes.hidden;
  input.intermediate_size = sizes.intermediate;
  input.gating = sizes.gating;
  input.group = fp4_group(problem);
  input.gemm1 = {.codes = source.w13.codes.tensor.view, .scales = source.w13.scales.tensor.view};
  input.gemm2 = {.codes = source.w2.codes.tensor.view, .scales = source.w2.scales.tensor.view};
  FEWBIT_TRY(const TrtllmResult result, prepare_trtllm_fp4(input));
  FEWBIT_TRY(put(plan, to, "w13.codes", result.gemm1.codes.view.bytes));
  FEWBIT_TRY(put(plan, to, "w13.scales", result.gemm1.scales.view.bytes));
  FEWBIT_TRY(put(plan, to, "w2.codes", result.gemm2.codes.view.bytes));
  FEWBIT_TRY(put(plan, to, "w2.scales", result.gemm2.scales.view.bytes));
  FEWBIT_TRY(
      put_bias(plan, w13_stack(expert, FirstPart::up), rows_of(sizes.w13(), sizes.gating), to));
  FEWBIT_TRY(put_bias(plan, w2_stack(expert), rows_of(sizes.w2(), Gating::ungated), to));
  return put_globals(problem, plan, source, to);
}

Result<void> undo_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert,
                             ConstExpertSpans from) {
  const Fp4Sizes sizes = sizes_of(form, problem);
  const std::int64_t group = fp4_group(problem);
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, FirstPart::up));
  FEWBIT_TRY(undo_globals(problem, plan, source, from));
  FEWBIT_TRY(undo_matrix<Gating::ungated>(plan, "w2", sizes.w2(), group, source.w2, from));
  if (sizes.gating == Gating::ungated) {
    return undo_matrix<Gating::ungated>(plan, "w13", sizes.w13(), group, source.w13, from);
  }
  return undo_matrix<Gating::gated>(plan, "w13", sizes.w13(), group, source.w13, from);
}

}  // namespace fewbit::foreign
