// SPDX-License-Identifier: Apache-2.0
// Along which axis a matrix is cut, and what must stay whole there.
#pragma once

#include <cstdint>
#include <string_view>

#include "fewbit/scheme.hpp"

namespace fewbit {

struct SplitAxis {
  enum class Along { none, rows, columns };
  Along along = Along::none;
  std::int64_t size = 0;            // of each half, where gate and up are one matrix
  std::int64_t unit = 1;            // weights that share a scale or a packed word
  std::string_view unit_name = "";  // "groups", "blocks", "packed words"
  bool whole_scales = false;        // act-order: groups are not runs of columns
};

// `none`: every rank holds the whole matrix, or it can't be read.
SplitAxis split_axis(const Module& module);

// Whether tensor ranks cut it, readable or not.
bool is_cut(const Module& module);

// Intermediate features of an expert that stay together: rows of gate and up, columns of down.
std::int64_t feature_unit(const Scheme& gate_up, const Scheme& down);

}  // namespace fewbit
