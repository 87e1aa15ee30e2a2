// SPDX-License-Identifier: Apache-2.0
// The unit of tiles of AMX-BF16, as lane16_tile_loops.hpp uses one. Included inside a target region
// with amx-tile and amx-bf16. Instructions as text: g++ 12's intrinsics take a tile's number only
// as a literal, and its _tile_loadconfig leaves the stores of what it reads out.
#pragma once

struct AmxConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(AmxConfig) == 64);

class AmxUnit {
 public:
  inline __attribute__((always_inline)) void rows(int first, int second) {
    if (first != first_ || second != second_) configure(first, second);
  }
  void release() {
    asm volatile("tilerelease");
    first_ = 0;
  }

  template <int C>
  inline __attribute__((always_inline)) void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(C));
  }
  template <int C>
  inline __attribute__((always_inline)) void load(const float* memory, std::int64_t bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(memory), "r"(bytes), "i"(C) : "memory");
  }
  template <int C>
  inline __attribute__((always_inline)) void store(float* memory, std::int64_t bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(memory), "r"(bytes), "i"(C) : "memory");
  }
  template <int A>
  inline __attribute__((always_inline)) void operand(const std::uint16_t* memory) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(memory), "r"(std::int64_t{64}), "i"(A)
                 : "memory");
  }
  template <int C, int A, int B>
  inline __attribute__((always_inline)) void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }

 private:
  void configure(int first, int second) {
    AmxConfig config;
    const int rows_of[8] = {first, first, second, second, first, second, 16, 16};
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<std::uint8_t>(rows_of[tile]);
      config.row_bytes[tile] = rows_of[tile] == 0 ? 0 : 64;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
    first_ = first;
    second_ = second;
  }

  int first_ = 0;
  int second_ = 0;
};
