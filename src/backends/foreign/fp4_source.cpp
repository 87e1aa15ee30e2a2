// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/fp4_source.hpp"

#include <fmt/format.h>

#include <utility>

#include "backends/foreign/undo.hpp"
#include "canonical/one_global.hpp"
#include "core/checked.hpp"

namespace fewbit::foreign {
namespace {

Result<Fp4Matrix> matrix_of(const Stack& stack, Padding padded) {
  Fp4Matrix matrix;
  FEWBIT_TRY(matrix.codes, code_bytes(stack, padded));
  FEWBIT_TRY(matrix.scales, scale_bytes(stack, padded));
  return matrix;
}

Result<void> check_global(const Stack& stack) {
  for (const QuantizedTensor* part : stack.parts) {
    if (part->global_scale == 1.0F) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("a global scale of {} beside power-of-two scales, which the kernels "
                             "have no place for",
                             part->global_scale),
                 stack.name};
  }
  return {};
}

}  // namespace

Gating gating_of(const MoeProblem& problem) {
  return activation_gated(problem.activation.kind) ? Gating::gated : Gating::ungated;
}

Fp4Sizes padded_sizes(const MoeProblem& problem, std::int64_t hidden, std::int64_t intermediate) {
  return {.hidden = round_up(problem.hidden_size, hidden),
          .intermediate = round_up(problem.intermediate_size, intermediate),
          .gating = gating_of(problem)};
}

Result<Fp4Source> fp4_source(const ExpertWeights& given, const Fp4Sizes& sizes, FirstPart first) {
  const bool has_global = weight_kind(given.up.scheme) == WeightKind::nvfp4;
  ExpertWeights expert = given;
  if (has_global) {
    FEWBIT_TRY(expert, with_one_global(given));
  }
  const Stack w13 = w13_stack(expert, first);
  const Stack w2 = w2_stack(expert);
  if (!has_global) {
    FEWBIT_TRY(check_global(w13));
    FEWBIT_TRY(check_global(w2));
  }
  Fp4Source source;
  source.globals = {expert.up.global_scale, expert.down.global_scale};
  FEWBIT_TRY(source.w13, matrix_of(w13, {.rows = sizes.intermediate, .columns = sizes.hidden}));
  FEWBIT_TRY(source.w2, matrix_of(w2, {.rows = sizes.hidden, .columns = sizes.intermediate}));
  return source;
}

bool is_nvfp4(const MoeProblem& problem) {
  return weight_kind(problem.gate_up) == WeightKind::nvfp4;
}

std::int64_t fp4_group(const MoeProblem& problem) { return is_nvfp4(problem) ? 16 : 32; }

Result<void> plan_globals(const MoeProblem& problem, MoePlan& plan) {
  if (!is_nvfp4(problem)) return {};
  return add_part(plan, problem.down, {"global_scales", "row_major", "f32", DType::f32, {2}});
}

Result<void> put_globals(const MoeProblem& problem, const MoePlan& plan, const Fp4Source& source,
                         ExpertSpans to) {
  if (!is_nvfp4(problem)) return {};
  return put(plan, to, "global_scales", std::as_bytes(std::span(source.globals)));
}

Result<void> undo_globals(const MoeProblem& problem, const MoePlan& plan, const Fp4Source& source,
                          ConstExpertSpans from) {
  if (!is_nvfp4(problem)) return {};
  return compare_undone<RowMajor<32>>(plan, from, "global_scales", {.n = 1, .k = 2},
                                      std::as_bytes(std::span(source.globals)));
}

Result<void> check_kind(const MoeProblem& problem, Set<WeightKind> kinds, const char* expected) {
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    if (kinds.contains(weight_kind(*scheme))) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("the layout of {}, expected {}", scheme_text(*scheme), expected),
                 problem.where};
  }
  if (weight_kind(problem.gate_up) == weight_kind(problem.down)) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("gate and up are {}, down is {}: the kernels have one form for both",
                           scheme_text(problem.gate_up), scheme_text(problem.down)),
               problem.where};
}

Result<void> check_one_global(const MoeProblem& problem) {
  if (problem.two_scale_experts == 0) return {};
  return Error{
      ErrorCode::unsupported,
      fmt::format("gate and up of {} experts have two global scales that block scales can't make "
                  "one exactly, and the kernels have one",
                  problem.two_scale_experts),
      problem.where};
}

Result<void> add_part(MoePlan& plan, const Scheme& scheme, PlannedPart part) {
  return plan.add({.name = part.name,
                   .layout = part.layout,
                   .scale_format = std::move(part.scale_format),
                   .source = scheme_text(scheme),
                   .dtype = part.dtype,
                   .shape = std::move(part.shape)});
}

std::span<std::byte> share_of(const MoePlan& plan, ExpertSpans to, std::string_view name) {
  return to[static_cast<std::size_t>(plan.index(name))];
}

}  // namespace fewbit::foreign
