// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' pack-quantized: each row is a stream of codes of 1 to 8 bits in 32-bit words,
// or words of whole codes (whole_words.hpp).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "scheme/int8.hpp"

namespace fewbit {

// [n, k] as weight_shape says; empty when it is absent or no two positive integers.
struct MatrixSize {
  std::int64_t n = 0;
  std::int64_t k = 0;
};
std::optional<MatrixSize> stored_weight_shape(const Checkpoint& checkpoint, const Module& module);

// weight_shape of the modules of a checkpoint, read once for all of the same name in other layers
// and experts with the same shapes of codes and scales and the same width: thousands of experts lie
// in as many places of the files. Of values that fit no codes it asks some modules more, and then
// takes theirs for that of all.
class WeightShapes {
 public:
  // bits: as the config says; `fits`: whether the codes of the draft can be those of a matrix of
  // that size.
  std::optional<MatrixSize> find(const Checkpoint& checkpoint, const Draft& draft, int bits,
                                 const std::function<bool(MatrixSize)>& fits);

 private:
  static constexpr int most_asked = 16;
  struct Known {
    int asked = 0;  // most_asked: `size` holds for all
    std::optional<MatrixSize> size;
  };
  std::map<std::pair<std::string, Shape>, Known> known_;  // by names without numbers
};

// Claims the draft, or refuses it with what does not fit. The number of columns is that of
// weight_shape where it fits the codes, else the one that words and scales tell; the width that of
// the config where it fits, else the only one that does.
void claim_packed_rows(const Inventory& inventory, Draft& draft, Producer producer,
                       const IntegerOptions& options, WeightShapes& shapes);

}  // namespace fewbit
