// SPDX-License-Identifier: Apache-2.0
// Matrices of random GGUF blocks of the kinds that have an exact form with codes and scales apart.
#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_types.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {

// The e8m0 bytes that MXFP4's scales are drawn from.
struct E8m0Range {
  unsigned least = 0;
  unsigned most = 254;
};

// Scales that are no numbers, or 480, are left out.
inline QuantizedTensor random_gguf_blocks(std::string_view name, std::int64_t n, std::int64_t k,
                                          std::mt19937& random, E8m0Range e8m0 = {}) {
  const GgufType& type = *find_gguf_type(name);
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme.producer = Producer::gguf;
  tensor.scheme.packing = Packing::ggml;
  tensor.scheme.ggml_type = type.id;
  const std::int64_t blocks = n * k / type.elements;
  OwnedTensor codes = *allocate_tensor(DType::u8, {n, blocks / n * type.bytes});
  for (std::byte& byte : codes.bytes) byte = static_cast<std::byte>(random());
  for (std::int64_t b = 0; b < blocks; ++b) {
    std::byte* block = codes.bytes.data() + b * type.bytes;
    if (name == "TQ2_0") block[65] &= std::byte{0xBB};  // f16, finite
    if (name.ends_with("Q2_0") || name == "Q4_0" || name == "Q8_0") block[1] &= std::byte{0xBB};
    if (name == "MXFP4") {
      block[0] = static_cast<std::byte>(e8m0.least + random() % (e8m0.most - e8m0.least + 1));
    }
    for (int i = 0; name == "NVFP4" && i < 4; ++i) {
      if (block[i] == std::byte{0xFF}) block[i] = std::byte{0x7F};
    }
  }
  tensor.codes = codes.tensor;
  return tensor;
}

}  // namespace fewbit
