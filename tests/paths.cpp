// SPDX-License-Identifier: Apache-2.0
#include "paths.hpp"

namespace fewbit::tests {

std::filesystem::path source_dir() { return FEWBIT_SOURCE_DIR; }
std::filesystem::path shared_dir() { return FEWBIT_SHARED_DIR; }

}  // namespace fewbit::tests
