// SPDX-License-Identifier: Apache-2.0
// Measured layers as JSON, and against another run's.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include "bench/measure.hpp"
#include "checkpoint/json.hpp"

namespace fewbit::cli {

// Median seconds of a call by shape, scheme and number of tokens.
using OtherRun = std::map<std::tuple<std::string, std::string, std::int64_t>, double>;

// What `fewbit bench --json` printed. Errors: of reading; corrupt (what is missing).
Result<OtherRun> read_other_run(const std::filesystem::path& path);

// With `other` also the seconds there and how many times as fast this run was.
Json layer_json(const bench::LayerBench& layer, const OtherRun& other);
// A line a number of tokens that both runs have; says so when there is none.
std::string comparison_text(const bench::LayerBench& layer, const OtherRun& other);

}  // namespace fewbit::cli
