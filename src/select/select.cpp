// SPDX-License-Identifier: Apache-2.0
#include "select/select.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/device_info.hpp"
#include "core/environment.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"
#include "select/problem.hpp"
#include "select/rank_problem.hpp"

namespace fewbit {
namespace {

// What this binary lacks of a backend.
std::optional<Refusal> not_built(const Backend& backend, const DeviceInfo& device) {
  const auto& built = device.built_for;
  const bool holds = std::ranges::find(built, backend.built_for) != built.end();
  if (!backend.runs_here() || holds) return std::nullopt;
  return Refusal{Reason::not_built, fmt::format("code for {}", backend.built_for),
                 built.empty() ? "none" : fmt::format("{}", fmt::join(built, ", "))};
}

std::vector<Refusal> with_not_built(std::vector<Refusal> refusals, const Backend& backend,
                                    const DeviceInfo& device) {
  if (const auto lacks = not_built(backend, device)) refusals.push_back(*lacks);
  return refusals;
}

std::vector<std::string> names_of(Engine engine) {
  std::vector<std::string> names;
  const auto add = [&](const Backend* backend) {
    if (backend->engine == engine) names.emplace_back(backend->name);
  };
  std::ranges::for_each(all_backends(), add);
  std::ranges::for_each(foreign_backends(), add);
  return names;
}

std::string known_names(Engine engine) {
  return fmt::format("{}", fmt::join(names_of(engine), ", "));
}

Error refused(const std::string& name, const std::vector<Refusal>& refusals,
              const std::string& where) {
  return Error{ErrorCode::unsupported,
               fmt::format("backend {} can't run it: {}", name, refusals_text(refusals)), where};
}

// Forced by the caller or, second and of experts alone, by the environment.
struct Forced {
  std::string backend;
  std::string where;
};
Forced forced_backend(const MoeProblem& /*problem*/, const SelectOptions& options) {
  if (!options.backend.empty()) return {.backend = options.backend, .where = "backend"};
  if (options.engine != Engine::fewbit) return {};
  return {.backend = environment().backend.value_or(""), .where = "FEWBIT_BACKEND"};
}
Forced forced_backend(const LinearProblem& /*problem*/, const SelectOptions& options) {
  return {.backend = options.backend, .where = "backend"};
}

Result<std::string> force(const Selection& selection, const Forced& forced,
                          const std::string& where) {
  const Candidate* candidate = find_candidate(selection, forced.backend);
  if (candidate == nullptr) return unknown_backend(selection.engine, forced.backend, forced.where);
  if (candidate->refusals.empty()) return candidate->backend;
  return refused(forced.backend, candidate->refusals, where);
}

Result<std::string> choose(const Selection& selection, const std::string& where) {
  std::string all;
  for (const Candidate& candidate : selection.candidates) {
    if (!candidate.refusals.empty()) {
      all += fmt::format("\n  {}: {}", candidate.backend, refusals_text(candidate.refusals));
    } else if (!candidate.only_forced.empty()) {
      all += fmt::format("\n  {}: only when forced: {}", candidate.backend, candidate.only_forced);
    } else {
      return candidate.backend;
    }
  }
  return Error{ErrorCode::unsupported, none_of_them_text(selection) + ":" + all, where};
}

std::vector<RankedBackend> backends_for(Engine engine, const MoeProblem& problem,
                                        const DeviceInfo& device) {
  return backends_of(engine, problem, device);
}
// Dense layers are fewbit's own affair.
std::vector<RankedBackend> backends_for(Engine /*engine*/, const LinearProblem& /*problem*/,
                                        const DeviceInfo& device) {
  return backends_of(Engine::fewbit, {}, device);
}

std::string why_unprepared(const Backend& backend, const MoeProblem& problem) {
  return backend.why_unprepared(problem);
}
// Only experts are prepared for other engines.
std::string why_unprepared(const Backend& /*backend*/, const LinearProblem& /*problem*/) {
  return "";
}

// refusals: of a backend.
template <class Problem, class Refusals>
Result<Selection> examine(const Problem& problem, const DeviceInfo& device, Engine engine,
                          const Refusals& refusals) {
  FEWBIT_TRY(check_problem(problem));
  Selection selection;
  selection.engine = engine;
  for (const RankedBackend& ranked : backends_for(engine, problem, device)) {
    selection.candidates.push_back({.backend = ranked.backend->name,
                                    .refusals = refusals(*ranked.backend),
                                    .only_forced = ranked.only_forced,
                                    .unbuilt = unbuilt_text(*ranked.backend, device),
                                    .unprepared = why_unprepared(*ranked.backend, problem)});
  }
  return selection;
}

std::string numerics_of(const Backend& backend, DType activation_dtype) {
  if (backend.arithmetic != nullptr) return backend.arithmetic;
  return fmt::format("{} activations, {} accumulation", dtype_name(activation_dtype),
                     backend.accumulation);
}

template <class Problem>
Result<Selection> choose_from(Selection selection, const Problem& problem,
                              const SelectOptions& options) {
  const Forced forced = forced_backend(problem, options);
  selection.forced = !forced.backend.empty();
  if (selection.forced) {
    FEWBIT_TRY(selection.chosen, force(selection, forced, problem.where));
  } else {
    FEWBIT_TRY(selection.chosen, choose(selection, problem.where));
  }
  selection.numerics = numerics_of(*find_backend(selection.chosen), problem.activation_dtype);
  return selection;
}

template <class Problem>
Result<Selection> select(const Problem& problem, const DeviceInfo& device,
                         const SelectOptions& options) {
  FEWBIT_TRY(Selection selection,
             examine(problem, device, options.engine, [&](const Backend& backend) {
               return refusals_of(backend, problem, device);
             }));
  return choose_from(std::move(selection), problem, options);
}

template <class Problem>
Result<const Backend*> selected(const Selection& selection, const Problem& problem,
                                const DeviceInfo& device) {
  FEWBIT_TRY(check_problem(problem));
  const Backend* backend = find_backend(selection.chosen);
  if (backend == nullptr || !backend->runs_here()) {
    return unknown_backend(Engine::fewbit, selection.chosen, problem.where);
  }
  std::vector<Refusal> refusals = refusals_of(*backend, problem, device);
  if (device.described) refusals = with_not_built(std::move(refusals), *backend, device);
  if (device.described && device.kind != DeviceKind::cpu) {
    refusals.push_back({Reason::device, "a device that is here", device_label(device)});
  }
  if (!refusals.empty()) return refused(selection.chosen, refusals, problem.where);
  return backend;
}

}  // namespace

Error unknown_backend(Engine engine, const std::string& name, const std::string& where) {
  const Backend* other = find_backend(name);
  if (other != nullptr) {
    return Error{ErrorCode::unsupported,
                 fmt::format("backend {} is run by {}, not by {}, which has {}", name,
                             engine_name(other->engine), engine_name(engine), known_names(engine)),
                 where};
  }
  return Error{ErrorCode::invalid_argument,
               fmt::format("unknown backend {}, known: {}{}", quote(name), known_names(engine),
                           did_you_mean(name, names_of(engine))),
               where};
}

std::vector<Refusal> refusals_of(const Backend& backend, const MoeProblem& problem,
                                 const DeviceInfo& device) {
  std::vector<Refusal> refusals = backend.moe_refusals(problem, device);
  if (device.described) return refusals;
  return with_not_built(std::move(refusals), backend, device);
}

std::vector<Refusal> refusals_of(const Backend& backend, const LinearProblem& problem,
                                 const DeviceInfo& device) {
  std::vector<Refusal> refusals = backend.linear_refusals(problem, device);
  if (device.described) return refusals;
  return with_not_built(std::move(refusals), backend, device);
}

std::string refusals_text(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& refusal : refusals) {
    text += fmt::format("{}{}: needs {}, has {}", text.empty() ? "" : "; ",
                        reason_name(refusal.reason), refusal.needs, refusal.has);
  }
  return text;
}

std::string unbuilt_text(const Backend& backend, const DeviceInfo& device) {
  const auto lacks = device.described ? not_built(backend, device) : std::nullopt;
  return lacks ? fmt::format("needs {}, has {}", lacks->needs, lacks->has) : "";
}

const Candidate* find_candidate(const Selection& selection, std::string_view backend) {
  const auto& all = selection.candidates;
  const auto at = std::ranges::find(all, backend, &Candidate::backend);
  return at == all.end() ? nullptr : &*at;
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
    case Reason::parallel:
      return "parallel";
    case Reason::engine:
      return "engine";
    case Reason::layout:
      return "layout";
  }
  return "unknown";
}

Result<void> check_backend_variable() {
  const Forced forced = forced_backend(MoeProblem{}, {});
  const Backend* backend = find_backend(forced.backend);
  if (forced.backend.empty() || (backend != nullptr && backend->runs_here())) return {};
  return unknown_backend(Engine::fewbit, forced.backend, forced.where);
}

std::string none_of_them_text(const Selection& selection) {
  const std::size_t count = selection.candidates.size();
  if (selection.engine == Engine::fewbit) {
    return fmt::format("none of fewbit's {} backends can run it", count);
  }
  return fmt::format("none of the {} backends of {} described here can run it", count,
                     engine_name(selection.engine));
}

Result<Selection> examine_backends(const MoeProblem& problem, const DeviceInfo& device,
                                   Engine engine) {
  return examine(problem, device, engine,
                 [&](const Backend& backend) { return refusals_of(backend, problem, device); });
}

Result<Selection> examine_spread(const MoeProblem& whole, const Parallel& parallel,
                                 const DeviceInfo& device, Engine engine) {
  FEWBIT_TRY(const MoeProblem share, rank_problem(whole, parallel, dealing_of(engine, whole)));
  return examine(share, device, engine, [&](const Backend& backend) {
    return spread_of(backend, whole, device, parallel).refusals;
  });
}

Result<Selection> choose_backend(Selection examined, const MoeProblem& problem,
                                 const SelectOptions& options) {
  return choose_from(std::move(examined), problem, options);
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
