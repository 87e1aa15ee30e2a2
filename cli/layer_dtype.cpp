// SPDX-License-Identifier: Apache-2.0
#include "layer_dtype.hpp"

namespace fewbit::cli {

void add_layer_dtype_option(CLI::App& command, std::string& name) {
  command
      .add_option("--activation-dtype", name,
                  "bf16, f16 or f32; default: the model's own f16 or bf16 (dtype of config.json) "
                  "for other engines' backends, bf16 for fewbit's")
      ->transform(one_of({"bf16", "f16", "f32"}));
}

std::optional<DType> layer_dtype(const std::string& name) {
  return name.empty() ? std::nullopt : dtype_from_name(name);
}

}  // namespace fewbit::cli
