// SPDX-License-Identifier: Apache-2.0
// Names of element types in safetensors headers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fewbit/tensor.hpp"

namespace fewbit {

// "BF16" -> bf16, "F4" -> f4_e2m1; empty for a name the format does not have.
std::optional<DType> dtype_from_safetensors(std::string_view name);

// Inverse; empty for types that only exist in memory (nf3, i4, u4).
std::optional<std::string_view> safetensors_name(DType dtype);

// Position in the reference implementation's list of types, by which its writer sorts tensors.
// -1 for types without a name.
int safetensors_rank(DType dtype);

// "BOOL, F4, …": for messages.
std::string safetensors_known_names();

}  // namespace fewbit
