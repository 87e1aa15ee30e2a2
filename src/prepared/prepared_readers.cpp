// SPDX-License-Identifier: Apache-2.0
#include "prepared/prepared_readers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/environment.hpp"
#include "select/planned_layouts.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

// "cpu_avx512 (cpu_f4_lane16, cpu_f4_lane16_scales)"
std::string with_layouts(const std::string& backend, const std::string& layouts) {
  return fmt::format("{} ({})", backend, layouts);
}

// Only of weights that a backend takes is there a plan of its own to compare with.
bool can_plan(const Backend& backend, const Candidate& candidate) {
  return backend.check_plan != nullptr &&
         std::ranges::none_of(candidate.refusals, [](const Refusal& refusal) {
           return refusal.reason == Reason::weight || refusal.reason == Reason::shape;
         });
}

std::optional<Refusal> other_layout(const Candidate& candidate, const MoeProblem& problem,
                                    const PreparedLayerInfo& layer) {
  const Backend& backend = *find_backend(candidate.backend);
  const std::string found = layouts_text(layer.plan);
  const std::string has = with_layouts(layer.backend, found);
  if (!can_plan(backend, candidate)) {
    if (backend.name == layer.backend) return std::nullopt;
    return Refusal{Reason::layout, fmt::format("experts prepared for {}", backend.name), has};
  }
  const Result<void> own = backend.check_plan(problem, layer.plan);
  if (own) return std::nullopt;
  const std::string expected = planned_layouts(backend, problem);
  return Refusal{Reason::layout,
                 fmt::format("experts prepared for {}", with_layouts(backend.name, expected)),
                 expected == found ? own.error().what : has};
}

// What people read of it: short, the needs once.
Error unread(const PreparedLayerInfo& layer, const std::string& where, const Selection& selection,
             const std::string& asked, const std::string& needs) {
  const std::string prepared =
      fmt::format("prepared for backend {}", with_layouts(layer.backend, layouts_text(layer.plan)));
  const std::string what =
      !asked.empty() && asked != layer.backend
          ? fmt::format("{}; {}, which is asked for, can't read it: {}", prepared, asked, needs)
      : needs.empty()
          ? fmt::format("{}, which no backend of {} reads", prepared, engine_name(selection.engine))
          : fmt::format("{}, which can't run it: {}; nor can another backend", prepared, needs);
  return Error{ErrorCode::unsupported, what, where};
}

}  // namespace

Engine engine_of(const PreparedLayerInfo& layer) {
  const Backend* backend = find_backend(layer.backend);
  return backend == nullptr ? Engine::fewbit : backend->engine;
}

Result<PreparedReaders> prepared_readers(const PreparedLayerInfo& layer, const MoeProblem& problem,
                                         const DeviceInfo& device, SelectOptions options) {
  const bool own = options.engine == Engine::fewbit;
  if (!own && options.backend.empty() && engine_of(layer) == options.engine) {
    options.backend = layer.backend;
  }
  if (own && options.backend.empty()) options.backend = environment().backend.value_or("");
  PreparedReaders out;
  FEWBIT_TRY(out.selection, examine_backends(problem, device, options.engine));
  for (Candidate& candidate : out.selection.candidates) {
    const auto refusal = other_layout(candidate, problem, layer);
    if (refusal) candidate.refusals.push_back(*refusal);
    candidate.unprepared.clear();  // it is prepared
  }
  auto chosen = choose_backend(out.selection, problem, options);
  if (chosen) {
    out.selection = *std::move(chosen);
    return out;
  }
  out.selection.forced = !options.backend.empty();
  const std::string& asked = options.backend.empty() ? layer.backend : options.backend;
  const Candidate* refusing = find_candidate(out.selection, asked);
  out.refusing = asked;
  if (refusing != nullptr) out.needs = refusals_text(refusing->refusals);
  out.error = refusing == nullptr && out.selection.forced
                  ? chosen.error()
                  : unread(layer, problem.where, out.selection, options.backend, out.needs);
  return out;
}

}  // namespace fewbit
