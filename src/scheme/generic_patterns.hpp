// SPDX-License-Identifier: Apache-2.0
// Entries that exporters put into every list, whatever the model.
#pragma once

#include <string_view>

namespace fewbit {

// "*router*", "re:.*mlp.gate$", "*lm_head*", "re:visual.*": names of parts that some models have,
// between wildcards. A path with a number is none.
bool is_generic_pattern(std::string_view text);
// "lm_head", "visual": the same without wildcards, as the lists of other producers have them.
bool is_generic_name(std::string_view text);

}  // namespace fewbit
