// SPDX-License-Identifier: Apache-2.0
// How tokens are cut into panels and work into even, fixed shares.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/panel.hpp"

namespace fewbit::cpu {

// Tokens of one call that share the workspace; longer calls are cut. Enough to make the arithmetic
// the limit, few enough to keep the workspace small.
inline constexpr std::int64_t max_pass_tokens = 1024;

// Panels of as equal a size as can be, so that none is left with a token or two.
constexpr std::int64_t panels_for(std::int64_t tokens) {
  return (tokens + max_panel_tokens - 1) / max_panel_tokens;
}
// First token of panel p of panels_for(tokens).
constexpr std::int64_t panel_begin(std::int64_t tokens, std::int64_t p) {
  return tokens * p / panels_for(tokens);
}

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Share `worker` of `workers` of [0, count).
constexpr Range share(std::int64_t count, int worker, int workers) {
  return {count * worker / workers, count * (worker + 1) / workers};
}

}  // namespace fewbit::cpu
