// SPDX-License-Identifier: Apache-2.0
#include "run_verdict.hpp"

#include <fmt/format.h>

#include "select/select.hpp"

namespace fewbit::cli {
namespace {

constexpr std::string_view reference = "reference";

std::string engines_text(const RunVerdict& verdict) {
  std::string text;
  for (const RunVerdict::Other& other : verdict.engines) {
    text += fmt::format("{}{} would choose {}", text.empty() ? "; " : ", ", other.engine,
                        other.backend);
  }
  return text;
}

}  // namespace

std::string verdict_text(const RunVerdict& verdict) {
  if (verdict.part) return "a part of a model is not run alone";
  if (verdict.backend.empty()) {
    return fmt::format("fewbit can't run it on {}{}", verdict.machine, engines_text(verdict));
  }
  const char* slow = verdict.backend == reference ? " (exact, not fast)" : "";
  const std::string not_this =
      verdict.unbuilt.empty() ? "" : "; not this binary: not built: " + verdict.unbuilt;
  if (verdict.whole_model) {
    return fmt::format("fewbit runs it on {}, experts on {}{}{}", verdict.machine, verdict.backend,
                       slow, not_this);
  }
  return fmt::format("fewbit runs its experts on {} with {}{}, but not the whole model{}",
                     verdict.machine, verdict.backend, slow, not_this);
}

void set_backend(const Selection& selection, RunVerdict& verdict) {
  verdict.backend = selection.chosen;
  const Candidate* of = find_candidate(selection, selection.chosen);
  verdict.unbuilt = of == nullptr ? "" : of->unbuilt;
}

std::string candidate_text(const Candidate& candidate, const Selection& selection) {
  if (candidate.refusals.empty()) {
    const bool chosen = candidate.backend == selection.chosen;
    return (chosen ? "chosen, " + selection.numerics : "can run it") +
           (candidate.unbuilt.empty() ? "" : "; not built: " + candidate.unbuilt);
  }
  std::string text;
  for (const Refusal& r : candidate.refusals) {
    text += fmt::format("{}{}: needs {}, has {}",
                        text.empty() ? "refused: " : "\n                        ",
                        reason_name(r.reason), r.needs, r.has);
  }
  return text;
}

std::string engines_lines(std::span<const Selection> engines) {
  std::string chosen;
  std::string none;
  for (const Selection& selection : engines) {
    const char* name = engine_name(selection.engine);
    if (selection.chosen.empty()) {
      none += fmt::format("{}{} ({})", none.empty() ? "" : ", ", name, selection.candidates.size());
    } else {
      chosen += fmt::format("{}{} {}", chosen.empty() ? "" : ", ", name, selection.chosen);
    }
  }
  if (!chosen.empty()) chosen = "  other engines there would choose: " + chosen + "\n";
  if (!none.empty()) none = "  none of the backends described here takes it: " + none + "\n";
  return chosen + none;
}

std::string unprepared_text(const std::optional<Selection>& selection) {
  const Candidate* of = selection ? find_candidate(*selection, selection->chosen) : nullptr;
  if (of == nullptr || of->unprepared.empty()) return "";
  return "; `fewbit prepare` refuses it: " + of->unprepared;
}

Json verdict_json(const RunVerdict& verdict) {
  Json engines{Json::Array{}};
  for (const RunVerdict::Other& other : verdict.engines) {
    Json entry;
    entry.set("engine", other.engine);
    entry.set("backend", other.backend);
    engines.push_back(entry);
  }
  Json out;
  out.set("fewbit_backend", verdict.backend.empty() ? Json(nullptr) : Json(verdict.backend));
  if (!verdict.unbuilt.empty()) out.set("unbuilt", verdict.unbuilt);
  out.set("reference_only", verdict.backend == reference);
  out.set("whole_model", verdict.whole_model);
  out.set("part_of_model", verdict.part);
  out.set("engines", engines);
  return out;
}

}  // namespace fewbit::cli
