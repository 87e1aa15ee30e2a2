// SPDX-License-Identifier: Apache-2.0
// How the streaming MoE kernel runs a call: a pure function of sizes and of the card.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"
#include "kernels/cuda/moe_f4_grouped.hpp"
#include "layout/place.hpp"

namespace fewbit::cuda {

struct StreamShape {
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  bool gated = true;
  bool swiglu = true;
  bool plain = true;  // is_plain() and no biases
  CellKind kind = CellKind::nvfp4;
  bool dense = false;    // dense_shape()
  bool ordered = false;  // x has a row for every route, in the order of its expert's columns

  // Rows of a half of fc1: of gate and of up, or of the upper and the lower rows of up.
  std::int64_t rows1() const {
    if (dense) return 0;
    return gated ? intermediate_size : intermediate_size / 2;
  }
};

// A dense layer [n, k]: one expert that every token goes to, of which only fc2 is there.
StreamShape dense_shape(CellKind kind, std::int64_t tokens, Dims matrix);

// Its sizes with the names that the caller knows them by.
std::array<std::pair<const char*, std::int64_t>, 2> named_sizes(const StreamShape& shape);

struct StreamCard {
  int sm_count = 0;
  std::uint64_t shared_memory_bytes = 0;  // that one thread block can have
};
StreamCard card_of(const DeviceInfo& device);

// What a benchmark may set; 0: by the shape.
struct StreamChoice {
  int split1 = 0;
  int split2 = 0;
  int token_tiles = 0;
};

// Errors: unsupported (sizes that don't divide, or don't fit into shared memory: both numbers).
Result<StreamPlan> plan_stream(const CellFormat& format, const StreamShape& shape,
                               const StreamCard& card, const StreamChoice& choice = {});
// Of the most tokens, up to those of the shape, that a launch takes.
Result<StreamPlan> plan_stream_part(const CellFormat& format, StreamShape shape,
                                    const StreamCard& card);

}  // namespace fewbit::cuda
