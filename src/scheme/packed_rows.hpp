// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' pack-quantized: each row is a stream of codes of 1 to 8 bits in 32-bit words,
// or words of whole codes (whole_words.hpp).
#pragma once

#include <map>

#include "scheme/int8.hpp"

namespace fewbit {

// [n, k] as weight_shape says; empty when it is absent or no two positive integers.
struct MatrixSize {
  std::int64_t n = 0;
  std::int64_t k = 0;
};
std::optional<MatrixSize> stored_weight_shape(const Checkpoint& checkpoint, const Module& module);

// weight_shape of the modules of a checkpoint, read once for all with the same shapes of codes and
// scales: thousands of experts lie in as many places of the files.
class WeightShapes {
 public:
  std::optional<MatrixSize> find(const Checkpoint& checkpoint, const Draft& draft);

 private:
  std::map<Shape, MatrixSize> known_;
};

// Claims the draft, or refuses it with what does not fit. The number of columns is that of
// weight_shape where it fits the codes, else the one that words and scales tell; the width that of
// the config where it fits, else the only one that does.
void claim_packed_rows(const Inventory& inventory, Draft& draft, Producer producer,
                       const IntegerOptions& options, WeightShapes& shapes);

}  // namespace fewbit
