// SPDX-License-Identifier: Apache-2.0
// A unit of tiles for lane16_tile_loops.hpp in plain C++; includes nothing itself.
#pragma once

class SoftUnit {
 public:
  void rows(int count) {
    if (count == rows_[0]) return;
    const int all[8] = {count, count, count, count, count, count, 16, 16};
    std::memset(bytes_, 0, sizeof(bytes_));
    std::memcpy(rows_, all, sizeof(rows_));
  }
  void release() { std::memset(rows_, 0, sizeof(rows_)); }

  template <int C>
  void zero() {
    std::memset(bytes_[C], 0, sizeof(bytes_[C]));
  }
  template <int C>
  void load(const float* memory, std::int64_t bytes) {
    std::memset(bytes_[C], 0, sizeof(bytes_[C]));
    for (int row = 0; row < rows_[C]; ++row)
      std::memcpy(bytes_[C][row], reinterpret_cast<const char*>(memory) + row * bytes, 64);
  }
  template <int C>
  void store(float* memory, std::int64_t bytes) {
    for (int row = 0; row < rows_[C]; ++row)
      std::memcpy(reinterpret_cast<char*>(memory) + row * bytes, bytes_[C][row], 64);
  }
  template <int A>
  void operand(const std::uint16_t* memory) {
    load<A>(reinterpret_cast<const float*>(memory), 64);
  }
  // Even and odd elements of a row of A in a fused chain each, then their sum, then onto C; all to
  // nearest, subnormals as zero.
  template <int C, int A, int B>
  void dot() {
    for (int row = 0; row < rows_[C]; ++row)
      for (int column = 0; column < 16; ++column) {
        float sums[2] = {};
        for (int k = 0; k < 16; ++k)
          for (int i = 0; i < 2; ++i)
            sums[i] = flush(
                __builtin_fmaf(element(A, row, 2 * k + i), element(B, k, 2 * column + i), sums[i]));
        float total = 0;
        std::memcpy(&total, bytes_[C][row] + column * 4, 4);
        total = flush(flush(total) + flush(sums[0] + sums[1]));
        std::memcpy(bytes_[C][row] + column * 4, &total, 4);
      }
  }

 private:
  static float flush(float x) { return x > -0x1p-126F && x < 0x1p-126F ? x * 0.0F : x; }
  float element(int tile, int row, int i) const {
    std::uint16_t word = 0;
    std::memcpy(&word, bytes_[tile][row] + i * 2, 2);
    const std::uint32_t bits = std::uint32_t{word} << 16;
    float value = 0;
    std::memcpy(&value, &bits, 4);
    return flush(value);
  }

  char bytes_[8][16][64] = {};
  int rows_[8] = {};
};
