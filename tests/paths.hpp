// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace fewbit::tests {

// Folders that tests read. Compiled into one object, so that the objects of the tests themselves
// are the same in every work tree (and a compiler cache finds them).
std::filesystem::path source_dir();   // the project's root
std::filesystem::path vectors_dir();  // of CMake's FEWBIT_VECTORS_DIR; may be absent

}  // namespace fewbit::tests
