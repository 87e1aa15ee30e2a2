// SPDX-License-Identifier: Apache-2.0
// What the commands about checkpoints say of a prepared model.
#pragma once

#include <string>

#include "command.hpp"
#include "prepared/manifest.hpp"

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
// "prepared for cpu_avx512 (cpu_f4_lane16, …), 6 of 6 layers; all experts whole"
std::string prepared_line(const PreparedManifest& manifest);

}  // namespace fewbit::cli
