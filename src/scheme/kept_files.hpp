// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace fewbit {

// Whether a prepared model needs what stands under this name beside the weights: configs (of the
// model, of generation, of quantization), tokenizers and their chat templates; and licences, which
// go where the weights go. Model cards, texts and scripts speak of the source, and stay there.
bool is_kept_file(std::string_view name);

}  // namespace fewbit
