// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/marlin_preparation.hpp"

#include "backends/foreign/pack_marlin.hpp"
#include "backends/foreign/pack_packed_fp4.hpp"
#include "backends/foreign/undo_integers.hpp"

namespace fewbit::foreign::marlin {
namespace {

bool is(const MoeProblem& problem, WeightKind kind) {
  return weight_kind(problem.gate_up) == kind || weight_kind(problem.down) == kind;
}

}  // namespace

Result<void> check(const MoeProblem& problem) {
  if (is(problem, WeightKind::mxfp8)) {
    return Error{ErrorCode::unsupported, not_described, problem.where};
  }
  if (is(problem, WeightKind::nvfp4)) return check_packed_fp4(marlin_nvfp4_form, problem);
  return is_marlin_float(problem) ? check_marlin_float(problem) : check_marlin(problem);
}

Result<MoePlan> plan(const MoeProblem& problem, const ExpertWeights& first,
                     MarlinMxPadding padding) {
  FEWBIT_TRY(check(problem));
  if (is(problem, WeightKind::nvfp4)) return plan_packed_fp4(marlin_nvfp4_form, problem);
  return is_marlin_float(problem) ? plan_marlin_float(problem, first, padding)
                                  : plan_marlin_experts(problem, first);
}

Result<void> pack(const MoeProblem& problem, const MoePlan& plan, const ExpertWeights& expert,
                  ExpertSpans to, MarlinMxPadding padding) {
  if (is(problem, WeightKind::nvfp4)) {
    return pack_packed_fp4(marlin_nvfp4_form, problem, plan, expert, to);
  }
  return is_marlin_float(problem) ? pack_marlin_float(problem, plan, expert, to, padding)
                                  : pack_marlin_expert(problem, plan, expert, to);
}

Result<void> undo(const MoeProblem& problem, const MoePlan& plan, const ExpertWeights& expert,
                  ConstExpertSpans from, MarlinMxPadding padding) {
  if (is(problem, WeightKind::nvfp4)) {
    return undo_packed_fp4(marlin_nvfp4_form, problem, plan, expert, from);
  }
  if (!is_marlin_float(problem)) return undo_marlin_int(problem, plan, expert, from);
  return undo_marlin_float(problem, plan, expert, from, padding);
}

}  // namespace fewbit::foreign::marlin
