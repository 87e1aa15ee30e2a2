// SPDX-License-Identifier: Apache-2.0
// fewbit explain PREPARED: which backends read what is prepared already.
#pragma once

#include <optional>
#include <string>

#include "command.hpp"
#include "problem_options.hpp"

namespace fewbit::cli {

struct PreparedQuestion {
  std::string path;
  int layer = -1;  // the first
  std::string device;
  SpreadOptions spread;  // without an engine that of the backend; ranks are refused
  std::string backend;   // forced
  std::optional<DType> activation_dtype;
  bool json = false;
};
Result<int> explain_prepared(const PreparedQuestion& question);

}  // namespace fewbit::cli
