// SPDX-License-Identifier: Apache-2.0
// Counts what a test program allocates: operator new of all code, and malloc, calloc and free of
// the code that the program links (its target wraps them).
#pragma once

#include <cstdint>

namespace fewbit::testing {

// Bytes in use now.
std::int64_t allocated_bytes();
// The most since the last reset.
std::int64_t peak_bytes();
void reset_peak();

}  // namespace fewbit::testing
