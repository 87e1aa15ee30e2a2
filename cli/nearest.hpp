// SPDX-License-Identifier: Apache-2.0
// What a mistyped word may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fewbit::cli {

// The name that begins with the word, else the one that differs from it in the fewest characters,
// at most a third of them; empty when none is near. Case and leading dashes don't count.
std::string nearest(std::string_view word, std::span<const std::string> names);

// "; did you mean --device?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> names);

}  // namespace fewbit::cli
