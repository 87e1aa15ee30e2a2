// SPDX-License-Identifier: Apache-2.0
#include "leftovers.hpp"

#include "checkpoint/leftovers.hpp"
#include "command.hpp"

namespace fewbit::cli {

void clean_leftovers(const std::string& output) {
  for (const std::filesystem::path& path : remove_leftovers(output)) {
    print_err("note: removed {}, left by a process that was killed\n", path.string());
  }
  for (const std::filesystem::path& path : leftover_files(output)) {
    print_err("note: {} was left by a process that was killed; nothing goes on with it\n",
              path.string());
  }
}

}  // namespace fewbit::cli
