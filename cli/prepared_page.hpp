// SPDX-License-Identifier: Apache-2.0
// What the commands about checkpoints say of a prepared model.
#pragma once

#include <string>

#include "command.hpp"

namespace fewbit::cli {

struct PreparedCheck {
  std::string path;
  std::string source;         // empty: only its own hashes
  bool headers_only = false;  // no hashes either
  bool json = false;
  std::string device = "cpu";  // that is asked whether it can run the layers
};
// Opens it, checks every hash, compares it with its source when one is given, and says what it is.
Result<int> check_prepared(const PreparedCheck& check);
// Every layer with its buffers.
Result<int> inspect_prepared(const std::string& path, const CommonOptions& options);
// The problem of a layer, -1 for the first. Error not_found lists how many there are.
Result<MoeProblem> prepared_problem(const std::string& path, int layer,
                                    std::optional<DType> activation_dtype);
// "prepared for cpu_avx512 (cpu_f4_lane16, …), whole"
Result<std::string> prepared_line(const std::string& path);

}  // namespace fewbit::cli
