// SPDX-License-Identifier: Apache-2.0
#include "canonical/transpose.hpp"

#include <algorithm>
#include <cstring>

namespace fewbit {
namespace {

// In tiles, so that both sides stay in the cache. `width` is a constant for the compiler.
template <std::size_t width>
void transpose(std::span<const std::byte> from, std::span<std::byte> to, std::size_t rows,
               std::size_t cols) {
  constexpr std::size_t tile = 64;
  for (std::size_t r = 0; r < rows; r += tile) {
    for (std::size_t c = 0; c < cols; c += tile) {
      for (std::size_t i = r; i < std::min(r + tile, rows); ++i) {
        for (std::size_t j = c; j < std::min(c + tile, cols); ++j) {
          std::memcpy(to.data() + (j * rows + i) * width, from.data() + (i * cols + j) * width,
                      width);
        }
      }
    }
  }
}

}  // namespace

Result<Tensor> transposed_copy(const Tensor& tensor) {
  const Shape& shape = tensor.view.shape;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(tensor.view.dtype, {shape[1], shape[0]}));
  const auto rows = static_cast<std::size_t>(shape[0]);
  const auto cols = static_cast<std::size_t>(shape[1]);
  const auto from = tensor.view.bytes;
  switch (dtype_bits(tensor.view.dtype)) {
    case 8:
      transpose<1>(from, out.bytes, rows, cols);
      break;
    case 16:
      transpose<2>(from, out.bytes, rows, cols);
      break;
    case 32:
      transpose<4>(from, out.bytes, rows, cols);
      break;
    default:
      transpose<8>(from, out.bytes, rows, cols);
      break;
  }
  return std::move(out.tensor);
}

}  // namespace fewbit
