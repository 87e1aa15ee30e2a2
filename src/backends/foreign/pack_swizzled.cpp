// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_swizzled.hpp"

#include "backends/foreign/undo.hpp"
#include "layout/pack.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit::foreign {
namespace {

using Swizzle = Swizzle128x4<8>;

WeightKind kind_of(const MoeProblem& problem) { return weight_kind(problem.gate_up); }

Fp4Sizes sizes_of(const SwizzledForm& form, const MoeProblem& problem) {
  if (kind_of(problem) == WeightKind::mxfp4) {
    return padded_sizes(problem, form.mx_multiple, form.mx_multiple);
  }
  const bool pads = kind_of(problem) == WeightKind::nvfp4 && gating_of(problem) == Gating::ungated;
  return padded_sizes(problem, 1, pads ? 128 : 1);
}

Dims scale_grid(const MoeProblem& problem, Dims dims) {
  return {.n = dims.n, .k = dims.k / fp4_group(problem)};
}

Result<void> plan_matrix(const MoeProblem& problem, const Stack& stack, Dims d, MoePlan& plan) {
  const std::string codes = stack.name + ".codes";
  if (kind_of(problem) == WeightKind::plain) {
    FEWBIT_TRY(add_part(plan, stack.scheme(),
                        {codes.c_str(), "row_major", "", stack.scheme().weight, {d.n, d.k}}));
  } else {
    const Dims grid = Swizzle::padded(scale_grid(problem, d));
    const DType dtype = stack.scheme().scale->dtype;
    const std::string scales = stack.name + ".scales";
    FEWBIT_TRY(add_part(plan, stack.scheme(),
                        {codes.c_str(), "row_major", "", DType::u8, {d.n, d.k / 2}}));
    FEWBIT_TRY(add_part(plan, stack.scheme(),
                        {scales.c_str(),
                         "swizzle_128x4",
                         std::string(dtype_name(dtype)),
                         dtype,
                         {grid.n, grid.k}}));
  }
  if (!stack.biased()) return {};
  const std::string bias = stack.name + ".bias";
  return add_part(plan, stack.scheme(),
                  {bias.c_str(), "row_major", "", problem.activation_dtype, {d.n}});
}

Result<void> put_bias(const MoeProblem& problem, const MoePlan& plan, const Stack& stack, Dims d,
                      ExpertSpans to) {
  const std::string name = stack.name + ".bias";
  if (!stack.biased() && plan.find(name) == nullptr) return {};
  FEWBIT_TRY(const OwnedTensor bias,
             bias_of(stack, problem.activation_dtype, d.n / std::ssize(stack.parts)));
  return put(plan, to, name, bias.bytes);
}

// Padding included: every byte of the share is written.
Result<void> put_scales(const MoePlan& plan, std::string_view name, Dims grid,
                        std::span<const std::byte> rows, ExpertSpans to) {
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, {Swizzle::bytes(grid)}));
  pack<Swizzle>(
      grid,
      [&](std::int64_t n, std::int64_t k) {
        return std::to_integer<std::uint8_t>(rows[static_cast<std::size_t>(n * grid.k + k)]);
      },
      out.bytes);
  return put(plan, to, name, out.bytes);
}

Result<void> put_matrix(const MoeProblem& problem, const MoePlan& plan, const std::string& name,
                        const Fp4Matrix& source, Dims d, ExpertSpans to) {
  FEWBIT_TRY(put(plan, to, name + ".codes", source.codes.bytes));
  return put_scales(plan, name + ".scales", scale_grid(problem, d), source.scales.bytes, to);
}

Result<void> undo_matrix(const MoeProblem& problem, const MoePlan& plan, const std::string& name,
                         const Fp4Matrix& source, Dims d, ConstExpertSpans from) {
  FEWBIT_TRY(compare_undone<RowMajor<4>>(plan, from, name + ".codes", d, source.codes.bytes));
  return compare_undone<Swizzle>(plan, from, name + ".scales", scale_grid(problem, d),
                                 source.scales.bytes);
}

}  // namespace

Result<void> check_swizzled(const SwizzledForm& form, const MoeProblem& problem) {
  const bool other_activations = kind_of(problem) == WeightKind::mxfp4 &&
                                 !form.mx_activations.contains(activation_kind(problem.gate_up));
  if (form.undescribed.contains(kind_of(problem)) || other_activations) {
    return Error{ErrorCode::unsupported, not_described, problem.where};
  }
  FEWBIT_TRY(check_kind(problem, form.kinds, form.expected));
  return check_one_global(problem);
}

Result<MoePlan> plan_swizzled(const SwizzledForm& form, const MoeProblem& problem,
                              const ExpertWeights& first) {
  FEWBIT_TRY(check_swizzled(form, problem));
  const Fp4Sizes sizes = sizes_of(form, problem);
  MoePlan plan;
  plan.experts = problem.num_experts;
  FEWBIT_TRY(plan_matrix(problem, w13_stack(first, form.first), sizes.w13(), plan));
  FEWBIT_TRY(plan_matrix(problem, w2_stack(first), sizes.w2(), plan));
  FEWBIT_TRY(plan_globals(problem, plan));
  return plan;
}

Result<void> pack_swizzled(const SwizzledForm& form, const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ExpertSpans to) {
  const Fp4Sizes sizes = sizes_of(form, problem);
  const Stack w13 = w13_stack(expert, form.first);
  const Stack w2 = w2_stack(expert);
  FEWBIT_TRY(put_bias(problem, plan, w13, sizes.w13(), to));
  FEWBIT_TRY(put_bias(problem, plan, w2, sizes.w2(), to));
  if (kind_of(problem) == WeightKind::plain) {
    FEWBIT_TRY(const OwnedTensor in, element_rows(w13));
    FEWBIT_TRY(put(plan, to, "w13.codes", in.bytes));
    FEWBIT_TRY(const OwnedTensor out, element_rows(w2));
    return put(plan, to, "w2.codes", out.bytes);
  }
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, form.first));
  FEWBIT_TRY(put_matrix(problem, plan, "w13", source.w13, sizes.w13(), to));
  FEWBIT_TRY(put_matrix(problem, plan, "w2", source.w2, sizes.w2(), to));
  return put_globals(problem, plan, source, to);
}

Result<void> undo_swizzled(const SwizzledForm& form, const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from) {
  const Fp4Sizes sizes = sizes_of(form, problem);
  if (kind_of(problem) == WeightKind::plain) {
    FEWBIT_TRY(const OwnedTensor in, element_rows(w13_stack(expert, form.first)));
    FEWBIT_TRY(compare_undone<RowMajor<16>>(plan, from, "w13.codes", sizes.w13(), in.bytes));
    FEWBIT_TRY(const OwnedTensor out, element_rows(w2_stack(expert)));
    return compare_undone<RowMajor<16>>(plan, from, "w2.codes", sizes.w2(), out.bytes);
  }
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, form.first));
  FEWBIT_TRY(undo_globals(problem, plan, source, from));
  FEWBIT_TRY(undo_matrix(problem, plan, "w13", source.w13, sizes.w13(), from));
  return undo_matrix(problem, plan, "w2", source.w2, sizes.w2(), from);
}

}  // namespace fewbit::foreign
