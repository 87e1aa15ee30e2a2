// SPDX-License-Identifier: Apache-2.0
// Every operation of a golden set by its name in the manifest; ops_<topic>.cpp implement them.
#pragma once

#include "golden/case.hpp"

namespace fewbit::golden {

// ops_dequant.cpp
Result<Outputs> dequant_nvfp4(const GoldenCase& golden_case);
// ops_gguf.cpp
Result<Outputs> dequant_gguf(const GoldenCase& c);
Result<Outputs> dequant_q2_0(const GoldenCase& c);
Result<Outputs> quantize_gguf(const GoldenCase& c);

}  // namespace fewbit::golden
