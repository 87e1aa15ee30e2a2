// SPDX-License-Identifier: Apache-2.0
// A table of rules as a row of the list of backends.
#pragma once

#include "backends/foreign/foreign.hpp"
#include "backends/foreign/rules.hpp"
#include "select/backend.hpp"

namespace fewbit::foreign {

// How its layout is written, where there is one.
struct Preparation {
  decltype(Backend::plan_moe) plan = nullptr;
  decltype(Backend::pack_expert) pack = nullptr;
  decltype(Backend::check_prepare) check = nullptr;
};

struct Identity {
  Engine engine = Engine::vllm;
  const char* name = "";
  const char* summary = "";
  const char* layout = as_stored;
  const char* only_forced = "";
  Preparation preparation = {};
};

// Errors unsupported: there is nothing to prepare; another engine runs it.
Result<void> refuse_to_prepare(const MoeProblem& problem);
Result<MoePlan> refuse_to_plan(const MoeProblem& problem, const ExpertWeights& first);
Result<void> refuse_to_pack(const MoeProblem& problem, const MoePlan& plan,
                            const ExpertWeights& expert, ExpertSpans to);
Result<std::unique_ptr<PreparedLinear>> refuse_to_run(const LinearProblem& problem,
                                                      const QuantizedTensor& weight,
                                                      const DeviceInfo& device, Executor& executor);
std::vector<Refusal> refuse_linear(const LinearProblem& problem, const DeviceInfo& device);
std::string engine_decides(const MoeProblem& problem, std::int64_t tokens);

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
      .plan_moe = identity.preparation.plan != nullptr ? identity.preparation.plan : refuse_to_plan,
      .pack_expert =
          identity.preparation.pack != nullptr ? identity.preparation.pack : refuse_to_pack,
      .open_moe = nullptr,
      .unpack_expert = nullptr,
      .prepare_linear = refuse_to_run,
      .variant = engine_decides,
      .engine = identity.engine,
      .only_forced = identity.only_forced,
      .arithmetic = rules.arithmetic,
      .check_prepare =
          identity.preparation.check != nullptr ? identity.preparation.check : refuse_to_prepare,
  };
}

}  // namespace fewbit::foreign
