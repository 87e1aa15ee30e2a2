// SPDX-License-Identifier: Apache-2.0
// Where AutoRound's config and its tensors contradict each other, beside what words of integers
// share with GPTQ and AWQ.
#pragma once

#include "scheme/finding_groups.hpp"
#include "scheme/integer_config.hpp"
#include "scheme/reader.hpp"

namespace fewbit {

// Modules whose sizes, layout and rules the configs of GPTQ, AWQ and AutoRound are compared with.
bool is_compared_with_config(const Module& module);

// Which weights share a scale: "groups of 32"; and whether two say the same of a module.
std::string sharing_text(const Granularity& of);
bool same_sharing(const Granularity& stated, const Granularity& found, const Module& module);

// data_type, of a readable quantized module.
void check_auto_round_type(const IntegerConfig& config, const Module& module,
                           FindingGroups& groups);
// packing_format.
void check_auto_round_format(const IntegerConfig& config, const Module& module,
                             FindingGroups& groups);
// bits and group_size of codes that are no words of GPTQ or AWQ.
void check_auto_round_sizes(const IntegerConfig& config, const Module& module,
                            FindingGroups& groups);
// MLX's own block "quantization" beside AutoRound's, of a module in MLX's layout.
void check_mlx_copy(const IntegerConfig& config, const Module& module, FindingGroups& groups);

}  // namespace fewbit
