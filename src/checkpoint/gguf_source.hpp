// SPDX-License-Identifier: Apache-2.0
// What of an open GGUF model goes into another one.
#pragma once

#include <vector>

#include "checkpoint/gguf_plan.hpp"

namespace fewbit {

// A tensor as it is stored. Error unsupported: a type of unknown blocks.
Result<GgufTensorSpec> gguf_spec_of(const TensorInfo& info);
// A tensor of single numbers. Error unsupported: GGUF has no such type.
Result<GgufTensorSpec> gguf_spec_of(const TensorSpec& spec);

// All pairs, but for those of the alignment and of the split, which the writer makes.
std::vector<GgufPair> gguf_pairs_of(const GgufMetadata& metadata);
std::uint64_t gguf_alignment_of(const GgufMetadata& metadata);

}  // namespace fewbit
