// SPDX-License-Identifier: Apache-2.0
// Plain loops over 16 elements, which compilers turn into vector code of any instruction set.
#include "kernels/cpu/panel.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

struct Bf16 {
  using Bits = std::uint16_t;
  static float decode(Bits bits) { return bf16_to_f32(bits); }
  static Bits encode(float value) { return f32_to_bf16(value); }
};
struct F16 {
  using Bits = std::uint16_t;
  static float decode(Bits bits) { return f16_to_f32(bits); }
  static Bits encode(float value) { return f32_to_f16(value); }
};
struct F32 {
  using Bits = float;
  static float decode(Bits value) { return value; }
  static Bits encode(float value) { return value; }
};

template <class T>
float load(const std::uint8_t* row, std::int64_t n, int tokens, float* panel) {
  float largest[16] = {};
  for (std::int64_t i = 0; i < n; i += 16, panel += tokens * 16) {
    typename T::Bits bits[16] = {};
    const std::uint8_t* from = row + i * std::int64_t{sizeof(bits[0])};
    if (n - i >= 16)
      std::memcpy(bits, from, sizeof(bits));
    else
      std::memcpy(bits, from, static_cast<std::size_t>(n - i) * sizeof(bits[0]));
    for (int lane = 0; lane < 16; ++lane) {
      const float value = T::decode(bits[lane]);
      const float magnitude = std::abs(value);
      panel[lane] = value;
      largest[lane] = largest[lane] < magnitude ? magnitude : largest[lane];
    }
  }
  float result = 0.0F;
  for (const float value : largest) result = result < value ? value : result;
  return result;
}

template <class T>
float load_ordered(const std::uint8_t* row, const std::int32_t* order, std::int64_t n, int tokens,
                   float* panel) {
  float largest = 0.0F;
  for (std::int64_t i = 0; i < n; i += 16, order += 16, panel += tokens * 16) {
    for (int lane = 0; lane < 16; ++lane) {
      typename T::Bits bits;
      std::memcpy(&bits, row + order[lane] * std::int64_t{sizeof(bits)}, sizeof(bits));
      panel[lane] = T::decode(bits);
      const float magnitude = std::abs(panel[lane]);
      largest = largest < magnitude ? magnitude : largest;
    }
  }
  return largest;
}

template <class T>
void store(const float* panel, std::int64_t n, int tokens, std::uint8_t* row) {
  for (std::int64_t i = 0; i < n; i += 16, panel += tokens * 16) {
    typename T::Bits bits[16];
    for (int lane = 0; lane < 16; ++lane) bits[lane] = T::encode(panel[lane]);
    std::uint8_t* to = row + i * std::int64_t{sizeof(bits[0])};
    if (n - i >= 16)
      std::memcpy(to, bits, sizeof(bits));
    else
      std::memcpy(to, bits, static_cast<std::size_t>(n - i) * sizeof(bits[0]));
  }
}

template <class T>
void round_to(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16)
    for (int lane = 0; lane < 16; ++lane) values[i + lane] = T::decode(T::encode(values[i + lane]));
}

}  // namespace

float panel_load_bf16(const std::uint8_t* row, std::int64_t n, int tokens, float* panel) {
  return load<Bf16>(row, n, tokens, panel);
}
float panel_load_f16(const std::uint8_t* row, std::int64_t n, int tokens, float* panel) {
  return load<F16>(row, n, tokens, panel);
}
float panel_load_f32(const std::uint8_t* row, std::int64_t n, int tokens, float* panel) {
  return load<F32>(row, n, tokens, panel);
}

float panel_load_ordered_bf16(const std::uint8_t* row, const std::int32_t* order, std::int64_t n,
                              int tokens, float* panel) {
  return load_ordered<Bf16>(row, order, n, tokens, panel);
}
float panel_load_ordered_f16(const std::uint8_t* row, const std::int32_t* order, std::int64_t n,
                             int tokens, float* panel) {
  return load_ordered<F16>(row, order, n, tokens, panel);
}
float panel_load_ordered_f32(const std::uint8_t* row, const std::int32_t* order, std::int64_t n,
                             int tokens, float* panel) {
  return load_ordered<F32>(row, order, n, tokens, panel);
}

void panel_store_bf16(const float* panel, std::int64_t n, int tokens, std::uint8_t* row) {
  store<Bf16>(panel, n, tokens, row);
}
void panel_store_f16(const float* panel, std::int64_t n, int tokens, std::uint8_t* row) {
  store<F16>(panel, n, tokens, row);
}
void panel_store_f32(const float* panel, std::int64_t n, int tokens, std::uint8_t* row) {
  store<F32>(panel, n, tokens, row);
}

void round_bf16(float* values, std::int64_t count) { round_to<Bf16>(values, count); }
void round_f16(float* values, std::int64_t count) { round_to<F16>(values, count); }
void round_f32(float* /*values*/, std::int64_t /*count*/) {}

}  // namespace fewbit
