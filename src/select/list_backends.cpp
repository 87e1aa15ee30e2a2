// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fewbit/selection.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

// A layer that asks nothing special, so that only the machine can be refused.
MoeProblem plain_problem() {
  MoeProblem problem;
  problem.hidden_size = 1024;
  problem.intermediate_size = 512;
  problem.num_experts = 8;
  problem.top_k = 2;
  problem.gate_up = nvfp4_scheme();
  problem.down = nvfp4_scheme();
  return problem;
}

bool about_machine(const Refusal& refusal) {
  return refusal.reason == Reason::device || refusal.reason == Reason::isa ||
         refusal.reason == Reason::not_built;
}

}  // namespace

std::vector<BackendDescription> list_backends(const DeviceInfo& device, Engine engine) {
  std::vector<BackendDescription> list;
  const bool own = engine == Engine::fewbit;
  for (const Backend* backend : own ? all_backends() : foreign_backends()) {
    if (backend->engine != engine) continue;
    const std::vector<Refusal> refusals = refusals_of(*backend, plain_problem(), device);
    list.push_back({
        .name = backend->name,
        .summary = backend->summary,
        .built = std::ranges::find(device.built_for, backend->built_for) != device.built_for.end(),
        .usable = std::ranges::none_of(refusals, about_machine),
        .preparable = backend->pack_expert != nullptr,
        .layout = backend->layout,
        .engine = engine,
    });
  }
  return list;
}

}  // namespace fewbit
