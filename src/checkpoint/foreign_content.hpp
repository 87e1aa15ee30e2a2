// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace fewbit {

// What a file is when it is no safetensors file but one people often have in its place: "a GGUF
// file", "a Git LFS pointer, the data was never downloaded" …; empty when it is none of these.
std::string_view foreign_content(std::span<const std::byte> file);

}  // namespace fewbit
