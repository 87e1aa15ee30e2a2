// SPDX-License-Identifier: Apache-2.0
// How far two tensors of FP8 codes are apart, as SGLang's tests of its kernels judge it.
#pragma once

#include <cstdint>

#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit::sglang {

// Steps are between neighbouring e4m3 values; both zeros are one value. A code that is not a number
// is `large` beside any other code and equal to itself.
struct Fp8Difference {
  std::int64_t codes = 0;
  std::int64_t signs = 0;  // one value below zero, the other above
  std::int64_t steps = 0;  // one step or more apart
  std::int64_t large = 0;  // two or more
  // No sign differs, no code by two steps, fewer than 0.5 % by one.
  bool close() const { return signs == 0 && large == 0 && steps * 200 < codes; }
};
// SGLang's assert_fp8_all_close compares bytes: its own test of signs asks whether an unsigned byte
// is below zero, and both zeros are 128 steps apart there. Errors: invalid_argument for dtypes
// other than f8_e4m3 or different shapes.
Result<Fp8Difference> fp8_difference(const TensorView& a, const TensorView& b);

}  // namespace fewbit::sglang
