// SPDX-License-Identifier: Apache-2.0
// MLX's layout as AutoRound exports it: u32 words along the rows, lowest bits first, with a scale
// and an offset a group of columns. The words don't tell their width: the config does.
#pragma once

#include "fewbit/scheme.hpp"

namespace fewbit {

// Words along the rows of unsigned codes without a zero point: an offset is added instead.
inline bool is_affine_words(const Scheme& scheme) {
  return scheme.packing == Packing::words_row && scheme.scale && scheme.zero_point == 0 &&
         !scheme.zero_points && scheme.weight != DType::i4 && scheme.weight != DType::i8;
}

}  // namespace fewbit
