// SPDX-License-Identifier: Apache-2.0
// Activations of layers that other engines may run.
#pragma once

#include <optional>
#include <string>

#include "command.hpp"

namespace fewbit::cli {

// f16 too, and empty unless asked for.
void add_layer_dtype_option(CLI::App& command, std::string& name);
// Precondition: add_layer_dtype_option took it.
std::optional<DType> layer_dtype(const std::string& name);

}  // namespace fewbit::cli
