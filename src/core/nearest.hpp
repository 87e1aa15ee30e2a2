// SPDX-License-Identifier: Apache-2.0
// What a mistyped word may have meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fewbit {

// The names that begin with the word, else those that differ from it in the fewest characters, at
// most a third of them; two that changed places count as one. At most `most`, in the order given.
// Case and leading dashes don't count.
std::vector<std::string> nearest_names(std::string_view word, std::span<const std::string> names,
                                       std::size_t most);

// The first of them; empty when none is near.
std::string nearest(std::string_view word, std::span<const std::string> names);

// "; did you mean --device?", "; did you mean a, b or c?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::size_t most = 1);

}  // namespace fewbit
