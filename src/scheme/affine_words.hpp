// SPDX-License-Identifier: Apache-2.0
// MLX's affine layout, which AutoRound exports too: u32 words along the rows, lowest bits first,
// with a scale and an offset a group of columns. The words don't tell their width: the config does.
#pragma once

#include <string>

#include "fewbit/scheme.hpp"

namespace fewbit {

// Words along the rows of unsigned codes without a zero point: an offset is added instead.
inline bool is_affine_words(const Scheme& scheme) {
  switch (scheme.weight) {
    case DType::u1:
    case DType::u2:
    case DType::u3:
    case DType::u4:
    case DType::u5:
    case DType::u6:
    case DType::u8:
      return scheme.packing == Packing::words_row && scheme.scale && scheme.zero_point == 0 &&
             !scheme.zero_points;
    default:
      return false;
  }
}

// Zero points multiplied by their scale, added to each group instead of subtracted from the codes.
inline bool adds_offsets(const Scheme& scheme) {
  return is_affine_words(scheme) || scheme.packing == Packing::shorts_gemv;
}
// "0"; of such a scheme what it has in a zero point's place.
inline std::string zero_point_text(const Scheme& scheme) {
  return adds_offsets(scheme) ? "an offset a group that is added to it (MLX's biases)"
                              : std::to_string(scheme.zero_point);
}

}  // namespace fewbit
