// SPDX-License-Identifier: Apache-2.0
// Configs in files beside ModelOpt's: quant_cfg.json, with the algorithm of every layer, which
// TensorRT-LLM reads beside MIXED_PRECISION; jang_config.json.
#pragma once

#include "scheme/declared.hpp"

namespace fewbit {

inline constexpr std::string_view layer_file = "quant_cfg.json";
inline constexpr std::string_view jang_file = "jang_config.json";

// Gives a ModelOpt config of MIXED_PRECISION that lists no layers those of quant_cfg.json; a file
// that says another algorithm, or stands alone, is a config of its own. Files of that name with
// other things in them say nothing.
Result<void> declare_layer_file(Declared& declared, const Checkpoint& checkpoint);

// Of checkpoints that no other file describes.
Result<void> declare_jang_file(Declared& declared, const Checkpoint& checkpoint);

}  // namespace fewbit
