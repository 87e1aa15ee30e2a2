// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al. 2021), halves rotated: element i of a head pairs with
// element i + dim/2, angle = position * theta^(-2i/dim).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fewbit {

// Cosine and sine of `rows` positions from `start` on: [rows, dim/2]. The frequency and the angle
// are rounded to f32, as models are trained.
void fill_rope(double theta, std::int64_t start, std::size_t half, std::span<float> cosine,
               std::span<float> sine);

// head [dim], cosine and sine [dim/2] of its position.
void rotate_halves(std::span<float> head, std::span<const float> cosine,
                   std::span<const float> sine);

}  // namespace fewbit
