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
  inline __attribute__((always_inline)) void rows(int count) {
    if (count != rows_) configure(count);
  }
  void release() {
    asm volatile("tilerelease");
    rows_ = 0;
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
  void configure(int count) {
    AmxConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? count : 16);
      config.row_bytes[tile] = 64;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));
    rows_ = count;
  }

  int rows_ = 0;
};
