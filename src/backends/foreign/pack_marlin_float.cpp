// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_marlin_float.hpp"

#include <fmt/format.h>

#include <optional>

#include "backends/foreign/fp4_source.hpp"
#include "backends/foreign/undo.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/prepare_marlin_float.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit::foreign {
namespace {

constexpr Set<WeightKind> kinds{WeightKind::mxfp4, WeightKind::fp8_tensor, WeightKind::fp8_channel,
                                WeightKind::fp8_block};

bool is_mxfp4(const MoeProblem& problem) {
  return weight_kind(problem.gate_up) == WeightKind::mxfp4;
}

Fp4Sizes sizes_of(const MoeProblem& problem, MarlinMxPadding padding) {
  if (!is_mxfp4(problem)) padding = {};
  return padded_sizes(problem, padding.hidden, padding.intermediate);
}

std::string name_of(const Stack& stack, const char* part) { return stack.name + "." + part; }

Result<void> plan_stack(const MoeProblem& problem, const Stack& stack, Dims dims, MoePlan& plan) {
  const DType type = problem.activation_dtype;
  const std::string words = name_of(stack, "words");
  const std::string scales = name_of(stack, "scales");
  const auto add = [&](PlannedPart part) {
    return add_part(plan, stack.scheme(), std::move(part));
  };
  if (is_mxfp4(problem)) {
    FEWBIT_TRY(add({words.c_str(), "marlin_4bit", "", DType::i32, {dims.k / 16, dims.n * 2}}));
    FEWBIT_TRY(
        add({scales.c_str(), "byte_scale_grid", "f8_e8m0", DType::f8_e8m0, {dims.k / 32, dims.n}}));
  } else {
    const int lift = type == DType::bf16 ? 120 : 8;
    FEWBIT_TRY(add({words.c_str(), "marlin_8bit", "", DType::i32, {dims.k / 16, dims.n * 4}}));
    FEWBIT_TRY(add({scales.c_str(),
                    "marlin_scales",
                    fmt::format("{} * 2^{}", dtype_name(type), lift),
                    type,
                    {stack.groups(), dims.n}}));
  }
  if (!stack.biased()) return {};
  return add({name_of(stack, "bias").c_str(), "marlin_scales", "", type, {dims.n}});
}

Result<std::optional<OwnedTensor>> bias_source(const MoeProblem& problem, const Stack& stack,
                                               Dims dims) {
  if (!stack.biased()) return std::optional<OwnedTensor>();
  FEWBIT_TRY(OwnedTensor bias,
             bias_of(stack, problem.activation_dtype, dims.n / std::ssize(stack.parts)));
  return std::optional(std::move(bias));
}

std::optional<TensorView> view_of(const std::optional<OwnedTensor>& tensor) {
  return tensor ? std::optional(tensor->tensor.view) : std::nullopt;
}

Result<void> put_result(const MoePlan& plan, const Stack& stack, const MarlinFloatResult& result,
                        ExpertSpans to) {
  FEWBIT_TRY(put(plan, to, name_of(stack, "words"), result.words.view.bytes));
  FEWBIT_TRY(put(plan, to, name_of(stack, "scales"), result.scales.view.bytes));
  const std::string bias = name_of(stack, "bias");
  if (result.bias.empty() && plan.find(bias) == nullptr) return {};
  return put(plan, to, bias, result.bias.view.bytes);
}

Result<void> pack_mxfp4(const MoeProblem& problem, const Stack& stack, const Fp4Matrix& source,
                        Dims dims, const MoePlan& plan, ExpertSpans to) {
  FEWBIT_TRY(const auto bias, bias_source(problem, stack, dims));
  FEWBIT_TRY(const MarlinFloatResult result,
             prepare_marlin_mxfp4({.codes = source.codes.tensor.view,
                                   .scales = source.scales.tensor.view,
                                   .bias = view_of(bias)},
                                  dims, MarlinActivation::bits16, MarlinRules::exact));
  return put_result(plan, stack, result, to);
}

Result<void> pack_fp8(const MoeProblem& problem, const Stack& stack, Dims dims, const MoePlan& plan,
                      ExpertSpans to) {
  FEWBIT_TRY(const OwnedTensor codes, element_rows(stack));
  FEWBIT_TRY(const OwnedTensor scales, fp8_scales(stack));
  FEWBIT_TRY(const auto bias, bias_source(problem, stack, dims));
  FEWBIT_TRY(const MarlinFloatResult result,
             prepare_marlin_fp8(
                 {.codes = codes.tensor.view, .scales = scales.tensor.view, .bias = view_of(bias)},
                 dims, problem.activation_dtype));
  return put_result(plan, stack, result, to);
}

Result<void> undo_mxfp4(const MoePlan& plan, const Stack& stack, const Fp4Matrix& source, Dims dims,
                        ConstExpertSpans from) {
  const Dims grid{.n = dims.n, .k = dims.k / 32};
  FEWBIT_TRY(
      compare_undone<B12xPacked>(plan, from, name_of(stack, "words"), dims, source.codes.bytes));
  const std::string scales = name_of(stack, "scales");
  return scale_order(dims.k, 32) == ScaleOrder::grouped
             ? compare_undone<GroupedByteScales>(plan, from, scales, grid, source.scales.bytes)
             : compare_undone<SingleByteScales>(plan, from, scales, grid, source.scales.bytes);
}

Result<void> undo_fp8(const MoePlan& plan, const Stack& stack, Dims dims, ConstExpertSpans from) {
  FEWBIT_TRY(const OwnedTensor codes, element_rows(stack));
  return compare_undone<Marlin8Bit>(plan, from, name_of(stack, "words"), dims, codes.bytes);
}

}  // namespace

bool is_marlin_float(const MoeProblem& problem) {
  return kinds.contains(weight_kind(problem.gate_up));
}

Result<void> check_marlin_float(const MoeProblem& problem) {
  return check_kind(problem, kinds, "MXFP4 or FP8");
}

Result<MoePlan> plan_marlin_float(const MoeProblem& problem, const ExpertWeights& first,
                                  MarlinMxPadding padding) {
  FEWBIT_TRY(check_marlin_float(problem));
  const Fp4Sizes sizes = sizes_of(problem, padding);
  MoePlan plan;
  plan.experts = problem.num_experts;
  FEWBIT_TRY(plan_stack(problem, w13_stack(first), sizes.w13(), plan));
  FEWBIT_TRY(plan_stack(problem, w2_stack(first), sizes.w2(), plan));
  return plan;
}

Result<void> pack_marlin_float(const MoeProblem& problem, const MoePlan& plan,
                               const ExpertWeights& expert, ExpertSpans to,
                               MarlinMxPadding padding) {
  const Fp4Sizes sizes = sizes_of(problem, padding);
  const Stack w13 = w13_stack(expert);
  const Stack w2 = w2_stack(expert);
  if (!is_mxfp4(problem)) {
    FEWBIT_TRY(pack_fp8(problem, w13, sizes.w13(), plan, to));
    return pack_fp8(problem, w2, sizes.w2(), plan, to);
  }
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, FirstPart::gate));
  FEWBIT_TRY(pack_mxfp4(problem, w13, source.w13, sizes.w13(), plan, to));
  return pack_mxfp4(problem, w2, source.w2, sizes.w2(), plan, to);
}

Result<void> undo_marlin_float(const MoeProblem& problem, const MoePlan& plan,
                               const ExpertWeights& expert, ConstExpertSpans from,
                               MarlinMxPadding padding) {
  const Fp4Sizes sizes = sizes_of(problem, padding);
  const Stack w13 = w13_stack(expert);
  const Stack w2 = w2_stack(expert);
  if (!is_mxfp4(problem)) {
    FEWBIT_TRY(undo_fp8(plan, w13, sizes.w13(), from));
    return undo_fp8(plan, w2, sizes.w2(), from);
  }
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, FirstPart::gate));
  FEWBIT_TRY(undo_mxfp4(plan, w13, source.w13, sizes.w13(), from));
  return undo_mxfp4(plan, w2, source.w2, sizes.w2(), from);
}

}  // namespace fewbit::foreign
