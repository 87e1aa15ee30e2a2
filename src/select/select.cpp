// SPDX-License-Identifier: Apache-2.0
#include "select/select.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/environment.hpp"
#include "core/quote.hpp"
#include "select/problem.hpp"

namespace fewbit {
namespace {

void add_not_built(const Backend& backend, const DeviceInfo& device,
                   std::vector<Refusal>& refusals) {
  const auto& built = device.built_for;
  const bool said = std::ranges::any_of(
      refusals, [](const Refusal& refusal) { return refusal.reason == Reason::not_built; });
  if (said || std::ranges::find(built, backend.built_for) != built.end()) return;
  refusals.push_back({Reason::not_built, fmt::format("code for {}", backend.built_for),
                      built.empty() ? "none" : fmt::format("{}", fmt::join(built, ", "))});
}

std::string known_names() {
  std::string names;
  for (const Backend* backend : all_backends()) {
    names += (names.empty() ? "" : ", ") + std::string(backend->name);
  }
  return names;
}

Error unknown_backend(const std::string& name, const std::string& where) {
  return Error{ErrorCode::invalid_argument,
               fmt::format("unknown backend {}, known: {}", quote(name), known_names()), where};
}

Error refused(const std::string& name, const std::vector<Refusal>& refusals,
              const std::string& where) {
  return Error{ErrorCode::unsupported,
               fmt::format("backend {} can't run it: {}", name, refusals_text(refusals)), where};
}

// Forced by the caller or, second, by the environment.
struct Forced {
  std::string backend;
  std::string where;
};
Forced forced_backend(const SelectOptions& options) {
  if (!options.backend.empty()) return {.backend = options.backend, .where = "backend"};
  return {.backend = environment().backend.value_or(""), .where = "FEWBIT_BACKEND"};
}

Result<std::string> choose(const std::vector<Candidate>& candidates, const Forced& forced,
                           const std::string& where) {
  std::string all;
  for (const Candidate& candidate : candidates) {
    if (!forced.backend.empty() && candidate.backend != forced.backend) continue;
    if (candidate.refusals.empty()) return candidate.backend;
    if (!forced.backend.empty()) return refused(forced.backend, candidate.refusals, where);
    all += fmt::format("\n  {}: {}", candidate.backend, refusals_text(candidate.refusals));
  }
  if (!forced.backend.empty()) return unknown_backend(forced.backend, forced.where);
  return Error{ErrorCode::unsupported, "no backend can run it:" + all, where};
}

template <class Problem>
Result<Selection> examine(const Problem& problem, const DeviceInfo& device) {
  FEWBIT_TRY(check_problem(problem));
  Selection selection;
  for (const Backend* backend : all_backends()) {
    selection.candidates.push_back(
        {.backend = backend->name, .refusals = refusals_of(*backend, problem, device)});
  }
  return selection;
}

template <class Problem>
Result<Selection> select(const Problem& problem, const DeviceInfo& device,
                         const SelectOptions& options) {
  FEWBIT_TRY(Selection selection, examine(problem, device));
  const Forced forced = forced_backend(options);
  FEWBIT_TRY(selection.chosen, choose(selection.candidates, forced, problem.where));
  selection.forced = !forced.backend.empty();
  selection.numerics =
      fmt::format("{} activations, {} accumulation", dtype_name(problem.activation_dtype),
                  find_backend(selection.chosen)->accumulation);
  return selection;
}

template <class Problem>
Result<const Backend*> selected(const Selection& selection, const Problem& problem,
                                const DeviceInfo& device) {
  FEWBIT_TRY(check_problem(problem));
  const Backend* backend = find_backend(selection.chosen);
  if (backend == nullptr) return unknown_backend(selection.chosen, problem.where);
  const std::vector<Refusal> refusals = refusals_of(*backend, problem, device);
  if (!refusals.empty()) return refused(selection.chosen, refusals, problem.where);
  return backend;
}

}  // namespace

std::vector<Refusal> refusals_of(const Backend& backend, const MoeProblem& problem,
                                 const DeviceInfo& device) {
  std::vector<Refusal> refusals = backend.moe_refusals(problem, device);
  add_not_built(backend, device, refusals);
  return refusals;
}

std::vector<Refusal> refusals_of(const Backend& backend, const LinearProblem& problem,
                                 const DeviceInfo& device) {
  std::vector<Refusal> refusals = backend.linear_refusals(problem, device);
  add_not_built(backend, device, refusals);
  return refusals;
}

std::string refusals_text(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& refusal : refusals) {
    text += fmt::format("{}{}: needs {}, has {}", text.empty() ? "" : "; ",
                        reason_name(refusal.reason), refusal.needs, refusal.has);
  }
  return text;
}

const char* reason_name(Reason reason) {
  switch (reason) {
    case Reason::device:
      return "device";
    case Reason::isa:
      return "isa";
    case Reason::not_built:
      return "not built";
    case Reason::weight:
      return "weight";
    case Reason::activation:
      return "activation";
    case Reason::dtype:
      return "dtype";
    case Reason::shape:
      return "shape";
    case Reason::routing:
      return "routing";
  }
  return "unknown";
}

Result<Selection> examine_backends(const MoeProblem& problem, const DeviceInfo& device) {
  return examine(problem, device);
}

Result<Selection> select_backend(const MoeProblem& problem, const DeviceInfo& device,
                                 const SelectOptions& options) {
  return select(problem, device, options);
}

Result<Selection> select_linear_backend(const LinearProblem& problem, const DeviceInfo& device,
                                        const SelectOptions& options) {
  return select(problem, device, options);
}

Result<const Backend*> selected_backend(const Selection& selection, const MoeProblem& problem,
                                        const DeviceInfo& device) {
  return selected(selection, problem, device);
}

Result<const Backend*> selected_backend(const Selection& selection, const LinearProblem& problem,
                                        const DeviceInfo& device) {
  return selected(selection, problem, device);
}

}  // namespace fewbit
