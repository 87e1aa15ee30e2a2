// SPDX-License-Identifier: Apache-2.0
// A table of rules as a row of the list of backends.
#pragma once

#include "backends/foreign/foreign.hpp"
#include "backends/foreign/rules.hpp"
#include "select/backend.hpp"

namespace fewbit::foreign {

// How its layout is written and taken apart.
struct Preparation {
  decltype(Backend::plan_moe) plan = nullptr;
  decltype(Backend::pack_expert) pack = nullptr;
  decltype(Backend::check_prepare) check = nullptr;
  decltype(Backend::undo_expert) undo = nullptr;
};

// Of a layout with forms: its four functions take the form first.
template <const auto& form, auto plan_form, auto pack_form, auto check_form, auto undo_form>
inline constexpr Preparation form_preparation{
    .plan = [](const MoeProblem& problem,
               const ExpertWeights& first) { return plan_form(form, problem, first); },
    .pack = [](const MoeProblem& problem, const MoePlan& plan, const ExpertWeights& expert,
               ExpertSpans to) { return pack_form(form, problem, plan, expert, to); },
    .check = [](const MoeProblem& problem) { return check_form(form, problem); },
    .undo = [](const MoeProblem& problem, const MoePlan& plan, const ExpertWeights& expert,
               ConstExpertSpans from) { return undo_form(form, problem, plan, expert, from); },
};

struct Identity {
  Engine engine = Engine::vllm;
  const char* name = "";
  const char* summary = "";
  const char* layout = as_stored;
  const char* only_forced = "";
  Preparation preparation;
};

// Nothing is prepared, and why: unsupported.
template <const char* why>
inline constexpr Preparation nothing{
    .plan = [](const MoeProblem& problem, const ExpertWeights&) -> Result<MoePlan> {
      return Error{ErrorCode::unsupported, why, problem.where};
    },
    .pack = [](const MoeProblem& problem, const MoePlan&, const ExpertWeights&,
               ExpertSpans) -> Result<void> {
      return Error{ErrorCode::unsupported, why, problem.where};
    },
    .check = [](const MoeProblem& problem) -> Result<void> {
      return Error{ErrorCode::unsupported, why, problem.where};
    },
};
inline constexpr char reads_rows[] =
    "its kernels read codes and scales in the rows that a checkpoint "
    "has";
inline constexpr char not_public[] = "how its kernels want weights arranged is not public";
inline constexpr char not_described[] =
    "how its kernels want these weights arranged is in none of the "
    "sources that fewbit follows (docs/backends.md)";

// Error unsupported: another engine runs it.
Result<std::unique_ptr<PreparedLinear>> refuse_to_run(const LinearProblem& problem,
                                                      const QuantizedTensor& weight,
                                                      const DeviceInfo& device, Executor& executor);
std::vector<Refusal> refuse_linear(const LinearProblem& problem, const DeviceInfo& device);
std::string engine_decides(const MoeProblem& problem, const DeviceInfo& device,
                           std::int64_t tokens);

template <const Rules& rules>
constexpr Backend backend(const Identity& identity) {
  return {
      .name = identity.name,
      .summary = identity.summary,
      .layout = identity.layout,
      .built_for = "",
      .moe_refusals = [](const MoeProblem& problem,
                         const DeviceInfo& device) { return unmet_needs(rules, problem, device); },
      .linear_refusals = refuse_linear,
      .plan_moe = identity.preparation.plan,
      .pack_expert = identity.preparation.pack,
      .open_moe = nullptr,
      .unpack_expert = nullptr,
      .prepare_linear = refuse_to_run,
      .variant = engine_decides,
      .engine = identity.engine,
      .only_forced = identity.only_forced,
      .arithmetic = rules.arithmetic,
      .check_prepare = identity.preparation.check,
      .undo_expert = identity.preparation.undo,
  };
}

}  // namespace fewbit::foreign
