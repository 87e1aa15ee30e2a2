// SPDX-License-Identifier: Apache-2.0
#include "paths.hpp"

namespace fewbit::tests {

std::filesystem::path source_dir() { return FEWBIT_SOURCE_DIR; }
std::filesystem::path vectors_dir() { return FEWBIT_VECTORS_DIR; }

}  // namespace fewbit::tests
