// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/b12x_preparation.hpp"

namespace fewbit::foreign::b12x {
namespace {

bool is_w4a16(const MoeProblem& problem) {
  return activation_kind(problem.gate_up) == ActivationKind::none;
}

}  // namespace

Result<void> check(const PackedFp4Form& packed, const MoeProblem& problem) {
  if (is_w4a16(problem)) return check_packed_fp4(packed, problem);
  if (weight_kind(problem.gate_up) == WeightKind::mxfp4) {
    return Error{ErrorCode::unsupported, not_described, problem.where};
  }
  return check_swizzled(w4a4, problem);
}

Result<MoePlan> plan(const PackedFp4Form& packed, const MoeProblem& problem,
                     const ExpertWeights& first) {
  FEWBIT_TRY(check(packed, problem));
  return is_w4a16(problem) ? plan_packed_fp4(packed, problem) : plan_swizzled(w4a4, problem, first);
}

Result<void> pack(const PackedFp4Form& packed, const MoeProblem& problem, const MoePlan& plan,
                  const ExpertWeights& expert, ExpertSpans to) {
  return is_w4a16(problem) ? pack_packed_fp4(packed, problem, plan, expert, to)
                           : pack_swizzled(w4a4, problem, plan, expert, to);
}

Result<void> undo(const PackedFp4Form& packed, const MoeProblem& problem, const MoePlan& plan,
                  const ExpertWeights& expert, ConstExpertSpans from) {
  return is_w4a16(problem) ? undo_packed_fp4(packed, problem, plan, expert, from)
                           : undo_swizzled(w4a4, problem, plan, expert, from);
}

}  // namespace fewbit::foreign::b12x
