// SPDX-License-Identifier: Apache-2.0
// Buffers around the CPU kernels that show a read or write outside of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/aligned_buffer.hpp"

namespace fewbit::test {

// f32 memory aligned to 64 bytes between two guard lines of NaN. A kernel that reads past the panel
// brings NaN into its results, one that writes past it changes the guard.
class GuardedFloats {
 public:
  explicit GuardedFloats(std::int64_t count)
      : buffer_(*AlignedBuffer::allocate(static_cast<std::uint64_t>(count + 2 * guard) * 4)),
        floats_(reinterpret_cast<float*>(buffer_.data())),
        count_(count) {
    for (std::int64_t i = 0; i < count + 2 * guard; ++i)
      floats_[i] = std::numeric_limits<float>::quiet_NaN();
  }
  float* data() { return floats_ + guard; }
  float& operator[](std::int64_t i) { return floats_[guard + i]; }
  std::int64_t size() const { return count_; }
  void expect_guards_intact() const {
    for (std::int64_t i = 0; i < guard; ++i) {
      EXPECT_TRUE(std::isnan(floats_[i])) << "written " << guard - i << " before the start";
      EXPECT_TRUE(std::isnan(floats_[guard + count_ + i])) << "written " << i << " past the end";
    }
  }

 private:
  static constexpr std::int64_t guard = 64;
  AlignedBuffer buffer_;
  float* floats_;
  std::int64_t count_;
};

// x as [k][tokens] values in the kernels' panel [ceil(k/16)][tokens][16], zero past k.
inline GuardedFloats panel_of(const std::vector<float>& x, std::int64_t k, int tokens) {
  GuardedFloats panel((k + 15) / 16 * tokens * 16);
  for (std::int64_t i = 0; i < panel.size(); ++i) panel[i] = 0.0F;
  for (int t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < k; ++i)
      panel[(i / 16 * tokens + t) * 16 + i % 16] = x[static_cast<std::size_t>(t * k + i)];
  return panel;
}

// Element (row, token) of a result [ceil(rows/16)][tokens][16].
inline float result_at(GuardedFloats& y, std::int64_t row, int token, int tokens) {
  return y[(row / 16 * tokens + token) * 16 + row % 16];
}

}  // namespace fewbit::test
