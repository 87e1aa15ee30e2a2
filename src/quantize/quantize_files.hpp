// SPDX-License-Identifier: Apache-2.0
// The files beside the weights of a quantized checkpoint.
#pragma once

#include "quantize/quantize_plan.hpp"

namespace fewbit {

// config.json with a quantization_config (all other keys unchanged), hf_quant_config.json, and
// every other small file of the source: tokenizer, generation config, licence, text.
Result<void> write_quantized_files(const Checkpoint& source, const QuantizePlan& plan,
                                   CheckpointWriter& writer);

// config.json without its quantization_config, and every other small file of the source; nothing
// for a GGUF source.
Result<void> write_dequantized_files(const Checkpoint& source, DType dtype,
                                     CheckpointWriter& writer);

}  // namespace fewbit
