// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/cpu/machine_limits.hpp"

namespace fewbit {

std::int64_t fma_loop_generic(std::int64_t rounds, float* sink) {
  constexpr int chains = 10;
  float acc[chains][4];
  // Different starts: equal chains would be one to the compiler.
  for (int c = 0; c < chains; ++c)
    for (int lane = 0; lane < 4; ++lane) acc[c][lane] = static_cast<float>(c * 4 + lane) + *sink;
  for (std::int64_t i = 0; i < rounds; ++i)
    for (auto& chain : acc)
      for (float& lane : chain) lane = lane * 0.999F + 0.001F;
  for (const auto& chain : acc)
    for (const float lane : chain) *sink += lane;
  return rounds * chains * 4 * 2;
}

std::uint64_t read_loop_generic(const std::uint8_t* data, std::int64_t size) {
  std::uint64_t seen[8] = {};
  for (std::int64_t i = 0; i < size; i += 64) {
    std::uint64_t line[8];
    std::memcpy(line, data + i, 64);
    for (int word = 0; word < 8; ++word) seen[word] |= line[word];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t word : seen) all |= word;
  return all;
}

}  // namespace fewbit
