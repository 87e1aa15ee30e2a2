// SPDX-License-Identifier: Apache-2.0
// Weights to measure with.
#pragma once

#include <random>

#include "bench/measure.hpp"

namespace fewbit::bench {

// A tensor of numbers between -0.05 and 0.05 (scales: above 0), or of bits as they come.
enum class Fill { numbers, scales, bits };
Result<Tensor> random_tensor(DType dtype, Shape shape, Fill fill, std::mt19937_64& random);

// The matrix of a dense shape. Error invalid_argument for an unknown scheme.
Result<QuantizedTensor> random_matrix(const LayerShape& shape, std::mt19937_64& random);
// The experts of a shape. What is packed is made once and serves all of them, so that large layers
// are made quickly: they differ in nothing but their bytes' place then. Weights that are read in
// place are made for each. Error invalid_argument for an unknown scheme.
Result<MoeWeights> random_weights(const LayerShape& shape, std::mt19937_64& random);

}  // namespace fewbit::bench
