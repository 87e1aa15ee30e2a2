// SPDX-License-Identifier: Apache-2.0
// Quantization methods that fewbit names and does not decode: what each is, in one sentence.
#pragma once

#include <string>

#include "fewbit/scheme.hpp"

namespace fewbit {

// For a quant_method, of any spelling: "EETQ: …"; empty when it is not known either.
std::string named_method_text(const std::string& method);
// For a producer that is not decoded in every form; empty for all others.
std::string named_producer_text(Producer producer);

}  // namespace fewbit
