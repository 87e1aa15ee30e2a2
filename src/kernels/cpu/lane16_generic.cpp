// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>
#include <utility>

#include "core/float_convert.hpp"
#include "kernels/cpu/lane16.hpp"

namespace fewbit {
namespace {

#include "kernels/cpu/lane16_loops.hpp"

// Loops over 16 lanes, which compilers turn into vector code of any instruction set.
struct Generic {
  struct Floats {
    float lane[16];
  };
  struct Words {
    std::uint32_t lane[16];
  };
  static constexpr int direct_tokens = 0;
  static constexpr int block_tokens = 2;
  [[maybe_unused]] static constexpr int prefetch_bytes = 2048;

  static constexpr bool raw_e4m3 = false;
  using NanRows = bool;

  template <class Lane>
  static Floats each(Lane lane) {
    Floats out;
    for (int r = 0; r < 16; ++r) out.lane[r] = lane(r);
    return out;
  }

  static Floats same(float x) {
    return each([x](int) { return x; });
  }
  static Floats zero() { return same(0.0F); }
  static Floats load(const float* p) {
    Floats out;
    std::memcpy(out.lane, p, sizeof(out.lane));
    return out;
  }
  static void store(float* p, const Floats& x) { std::memcpy(p, x.lane, sizeof(x.lane)); }
  static Floats mul(const Floats& a, const Floats& b) {
    return each([&](int r) { return a.lane[r] * b.lane[r]; });
  }
  static Floats sub(const Floats& a, const Floats& b) {
    return each([&](int r) { return a.lane[r] - b.lane[r]; });
  }
  static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each([&](int r) { return c.lane[r] + a.lane[r] * b.lane[r]; });
  }

  // Little-endian.
  static Words load_words(const std::uint8_t* p) {
    Words out;
    for (int r = 0; r < 16; ++r, p += 4) {
      out.lane[r] = std::uint32_t{p[0]} | std::uint32_t{p[1]} << 8 | std::uint32_t{p[2]} << 16 |
                    std::uint32_t{p[3]} << 24;
    }
    return out;
  }
  static Words same_words(std::uint32_t x) {
    Words out;
    for (std::uint32_t& lane : out.lane) lane = x;
    return out;
  }
  static Words flip(const Words& a, const Words& b) {
    Words out;
    for (int r = 0; r < 16; ++r) out.lane[r] = a.lane[r] ^ b.lane[r];
    return out;
  }
  static Words load_any_words(const std::uint8_t* p) { return load_words(p); }
  static Words load_halves(const std::uint8_t* p) {
    Words out;
    for (int r = 0; r < 16; ++r) out.lane[r] = bits16(p, r);
    return out;
  }
  static Words right(const Words& words, int i) {
    Words out;
    for (int r = 0; r < 16; ++r) out.lane[r] = words.lane[r] >> i;
    return out;
  }
  static Words left(const Words& words, int i) {
    Words out;
    for (int r = 0; r < 16; ++r) out.lane[r] = words.lane[r] << i;
    return out;
  }
  static Words right_by(const Words& words, int i) { return right(words, i); }
  static Words masked(const Words& words, std::uint32_t mask) {
    Words out;
    for (int r = 0; r < 16; ++r) out.lane[r] = words.lane[r] & mask;
    return out;
  }
  static Floats floats_of(const Words& words) {
    return each([&](int r) { return static_cast<float>(words.lane[r]); });
  }
  static Floats uint6_minus(const Words& words, int i, const Floats& zero) {
    return sub(floats_of(masked(right(words, 8 * i), 63)), zero);
  }
  static Words either(const Words& a, const Words& b) {
    Words out;
    for (int r = 0; r < 16; ++r) out.lane[r] = a.lane[r] | b.lane[r];
    return out;
  }
  static Floats nf3(const Words& codes) {
    return each([&](int r) { return nf3_to_f32(codes.lane[r] & 7U); });
  }
  static Floats ternary(const Words& codes) {
    return each([&](int r) { return static_cast<float>(codes.lane[r] & 3U) - 1.0F; });
  }
  static Floats e2m1(const Words& words, int i) {
    static constexpr float values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};
    return each([&](int r) { return values[words.lane[r] >> (4 * i) & 15U]; });
  }
  static Floats int4(const Words& words, int i) {
    return each([&](int r) {
      return static_cast<float>(static_cast<int>((words.lane[r] >> (4 * i) & 15U) ^ 8U) - 8);
    });
  }
  static Floats uint4_minus(const Words& words, int i, const Floats& zero) {
    return each(
        [&](int r) { return static_cast<float>(words.lane[r] >> (4 * i) & 15U) - zero.lane[r]; });
  }
  static Floats int8(const std::uint8_t* p, int flip) {
    return each([=](int r) { return static_cast<float>(static_cast<std::int8_t>(p[r] ^ flip)); });
  }
  static Floats e4m3(const std::uint8_t* p) {
    return each([=](int r) { return f8_e4m3_to_f32(p[r]); });
  }
  static Floats e8m0(const std::uint8_t* p) {
    return each([=](int r) { return f8_e8m0_to_f32(p[r]); });
  }
  static std::uint16_t bits16(const std::uint8_t* p, int r) {
    return static_cast<std::uint16_t>(p[2 * r] | p[2 * r + 1] << 8);
  }
  static Floats f16(const std::uint8_t* p) {
    return each([=](int r) { return f16_to_f32(bits16(p, r)); });
  }
  static Floats bf16(const std::uint8_t* p) {
    return each([=](int r) { return bf16_to_f32(bits16(p, r)); });
  }
  static Floats f32(const std::uint8_t* p) {
    Floats out;
    std::memcpy(out.lane, p, sizeof(out.lane));
    return out;
  }
};

}  // namespace

Lane16Fn* lane16_generic(Lane16Codes codes) { return kernel_of<Generic>(codes); }

}  // namespace fewbit
