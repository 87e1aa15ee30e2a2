// SPDX-License-Identifier: Apache-2.0
// Every operation of a golden set by its name in the manifest; ops_<topic>.cpp implement them.
#pragma once

#include "golden/case.hpp"

namespace fewbit::golden {

// ops_dequant.cpp
Result<Outputs> dequant_nvfp4(const GoldenCase& golden_case);

}  // namespace fewbit::golden
