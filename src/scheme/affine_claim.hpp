// SPDX-License-Identifier: Apache-2.0
// Claims a module of MLX's affine words (affine_words.hpp), whoever's config tells their width.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scheme/reader.hpp"

namespace fewbit {

struct AffineSpec {
  Producer producer = Producer::mlx;
  std::optional<std::int64_t> bits = std::nullopt;
  std::optional<std::int64_t> group_size = std::nullopt;  // empty or 0: what the shapes say
  std::string where = {};
  // What a second place says; empty: there is none.
  std::optional<std::int64_t> other_bits = std::nullopt;
  std::optional<std::int64_t> other_group_size = std::nullopt;
  std::string other_where = {};
};

// Precondition: it has weight, scales and biases. Claimed but unreadable where they don't fit.
void claim_affine(Draft& draft, const AffineSpec& spec);

}  // namespace fewbit
