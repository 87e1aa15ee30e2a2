// SPDX-License-Identifier: Apache-2.0
// What can run a checkpoint, beside whether its files are fine.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "command.hpp"

namespace fewbit::cli {

struct RunVerdict {
  bool part = false;         // one of several shards, or an adapter
  bool whole_model = false;  // eval and generate run it
  std::string machine;       // "this machine", "sm_90"
  std::string backend;       // of fewbit, for the experts; empty: none
  std::string unbuilt;       // what this binary lacks of it, on a described machine
  struct Other {
    std::string engine;
    std::string backend;
  };
  std::vector<Other> engines;  // that would choose a backend of theirs
};

// "runs here", "fewbit can't run it on this machine; vLLM would choose marlin".
std::string verdict_text(const RunVerdict& verdict);
Json verdict_json(const RunVerdict& verdict);
// What a selection of fewbit's own backends has chosen.
void set_backend(const Selection& selection, RunVerdict& verdict);
// "chosen, bf16 activations, f32 accumulation", "refused: isa: needs avx512, has avx2", one need a
// line.
std::string candidate_text(const Candidate& candidate, const Selection& selection);

// Which backend other engines would choose, a line each for those that do and those that don't.
// `explain --engine` has the reasons.
std::string engines_lines(std::span<const Selection> engines);
// "; `fewbit prepare` refuses it: …": experts that run but have no layout to be prepared in.
std::string unprepared_text(const std::optional<Selection>& selection);

}  // namespace fewbit::cli
