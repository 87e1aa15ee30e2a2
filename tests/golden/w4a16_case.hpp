// SPDX-License-Identifier: Apache-2.0
// The input of a W4A16 preparation as a golden case has it.
#pragma once

#include "fewbit/layouts.hpp"
#include "golden/case.hpp"

namespace fewbit::golden {

// Views of the case's tensors.
Result<W4a16Input> read_w4a16_input(const GoldenCase& c, W4a16Source source,
                                    BlockScaleStorage storage);

}  // namespace fewbit::golden
