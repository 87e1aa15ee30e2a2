// SPDX-License-Identifier: Apache-2.0
// Source and result of the repackings that are measured, and what most of them have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/repack_cases.hpp"
#include "core/aligned_buffer.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"

namespace fewbit::bench {

// Gate and up of an expert with hidden size 4096 and intermediate size 1536.
inline constexpr Dims codes{.n = 3072, .k = 4096};
inline constexpr std::int64_t experts = 8;
inline constexpr std::int64_t code_bytes = codes.n * codes.k / 2;  // 4 bits each

// What is smaller than the codes of an expert comes from as many more of them as have the same
// bytes, so that the start of threads counts as little as in the copy that it is compared with.
constexpr std::int64_t experts_of(std::int64_t bytes) {
  return std::max(experts, experts * code_bytes / bytes);
}

// As large as the largest, 8 bits an element.
struct Buffers {
  AlignedBuffer source;
  AlignedBuffer out;
  AlignedBuffer
      scales;  // e4m3, as checkpoints have them: 1/64 to 448; as many bytes as 4-bit codes
  std::vector<float> row_scales;
};
using SharedBuffers = std::shared_ptr<Buffers>;

Result<SharedBuffers> make_buffers();

// The first bytes of the memory.
TensorView view_of(DType dtype, Shape shape, std::span<const std::byte> memory);

// As many bytes read as written: pack(from, to) of each expert, a task each.
template <class Pack>
RepackCase each_expert(std::string name, const SharedBuffers& buffers, std::int64_t bytes,
                       Pack pack) {
  const std::int64_t count = experts_of(bytes);
  return {.name = std::move(name),
          .read_bytes = count * bytes,
          .written_bytes = count * bytes,
          .run = [=](Executor& executor) -> Result<void> {
            parallel_for(executor, static_cast<int>(count), [&](int expert) {
              const std::size_t size = static_cast<std::size_t>(bytes);
              const std::size_t at = static_cast<std::size_t>(expert) * size;
              pack(buffers->source.span().subspan(at, size), buffers->out.span().subspan(at, size));
            });
            return {};
          }};
}

using RepackCases = std::vector<RepackCase>;
void add_code_cases(const SharedBuffers& buffers, IsaLevel isa, RepackCases& cases);
void add_grid_cases(const SharedBuffers& buffers, IsaLevel isa, RepackCases& cases);
void add_marlin_cases(const SharedBuffers& buffers, RepackCases& cases);
void add_fp8_cases(const SharedBuffers& buffers, IsaLevel isa, RepackCases& cases);

}  // namespace fewbit::bench
