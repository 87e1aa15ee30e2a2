// SPDX-License-Identifier: Apache-2.0
#include "bench/repack_buffers.hpp"

#include <cstring>

namespace fewbit::bench {

Result<SharedBuffers> make_buffers() {
  constexpr std::uint64_t bytes = experts * codes.n * codes.k + (std::uint64_t{1} << 20);
  auto buffers = std::make_shared<Buffers>();
  FEWBIT_TRY(buffers->source, AlignedBuffer::allocate(bytes));
  FEWBIT_TRY(buffers->out, AlignedBuffer::allocate(bytes));
  std::uint32_t state = 1;
  for (std::byte& byte : buffers->source.span()) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24U);
  }
  FEWBIT_TRY(buffers->scales, AlignedBuffer::allocate(experts * code_bytes));
  for (std::byte& byte : buffers->scales.span()) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(8 + (state >> 24U) % 119);
  }
  std::memset(buffers->out.data(), 0, bytes);
  return buffers;
}

TensorView view_of(DType dtype, Shape shape, std::span<const std::byte> memory) {
  std::size_t bytes = static_cast<std::size_t>(dtype_bits(dtype));
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {
      .dtype = dtype, .shape = std::move(shape), .bytes = memory.first(bytes / 8), .device = {}};
}

}  // namespace fewbit::bench
