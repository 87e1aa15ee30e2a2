// SPDX-License-Identifier: Apache-2.0
// IQ1, IQ2 and IQ3: blocks of 256 elements whose codes point to vectors of a lattice. IQ2 and IQ3
// store magnitudes there and the signs beside; IQ1 shifts -1, 0 and 1 by an eighth up or down.
#include <bit>

#include "canonical/gguf_decode.hpp"
#include "canonical/gguf_lattice.hpp"

namespace fewbit {
namespace {

// Seven stored signs of eight: the last makes the number of minus signs even.
std::uint32_t signs_of_seven(std::uint32_t seven) {
  return seven | static_cast<std::uint32_t>(std::popcount(seven) & 1) << 7;
}

float minus_where(std::uint32_t signs, int i) { return (signs >> i & 1U) != 0 ? -1.0F : 1.0F; }

std::uint32_t nibble(const std::uint8_t* bytes, int i) { return bytes[i / 2] >> 4 * (i % 2) & 15U; }

// Eight elements: one vector of 8.
void put_vector(const GgufLattice& lattice, std::uint32_t vector, float scale, std::uint32_t signs,
                float* out) {
  for (int j = 0; j < 8; ++j) out[j] = scale * lattice.at(vector, j) * minus_where(signs, j);
}

// Eight elements: two vectors of 4.
void put_pair(const GgufLattice& lattice, std::uint32_t first, std::uint32_t second, float scale,
              std::uint32_t signs, float* out) {
  for (int j = 0; j < 8; ++j) {
    out[j] = scale * lattice.at(j < 4 ? first : second, j % 4) * minus_where(signs, j);
  }
}

float scale_of(float d, std::uint32_t code, float unit) {
  return d * (0.5F + static_cast<float>(code)) * unit;
}

// Eight elements of IQ1.
void put_shifted(std::uint32_t vector, float scale, bool down, float* out) {
  const float shift = down ? -0.125F : 0.125F;
  for (int j = 0; j < 8; ++j) out[j] = scale * (iq1_lattice.at(vector, j) + shift);
}

}  // namespace

// d; for each 32 elements four vectors of a byte, then a u32 of four times seven signs and the
// scale
void decode_iq2_xxs(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) {
    const std::uint8_t* group = block + 2 + i / 4 * 8;
    const std::uint32_t word = load_u32(group + 4);
    const std::uint32_t signs = signs_of_seven(word >> 7 * (i % 4) & 127U);
    put_vector(iq2_xxs_lattice, group[i % 4], scale_of(d, word >> 28, 0.25F), signs, out + 8 * i);
  }
}

// d; u16 qs[32] (nine bits a vector, seven signs); scales[8], a nibble for 16 elements
void decode_iq2_xs(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t code = load_u16(block + 2 + 2 * i);
    const float scale = scale_of(d, nibble(block + 66, i / 2), 0.25F);
    put_vector(iq2_xs_lattice, code & 511U, scale, signs_of_seven(code >> 9), out + 8 * i);
  }
}

// d; qs[32]; signs[32]; qh[8] (two high bits a vector); scales[8], a nibble for 16 elements
void decode_iq2_s(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t high = block[66 + i / 4] >> 2 * (i % 4) & 3U;
    const float scale = scale_of(d, nibble(block + 74, i / 2), 0.25F);
    put_vector(iq2_s_lattice, block[2 + i] | high << 8, scale, block[34 + i], out + 8 * i);
  }
}

// d; qs[64]; for each 32 elements a u32 of four times seven signs and the scale
void decode_iq3_xxs(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) {
    const std::uint8_t* qs = block + 2 + 2 * i;
    const std::uint32_t word = load_u32(block + 66 + i / 4 * 4);
    const std::uint32_t signs = signs_of_seven(word >> 7 * (i % 4) & 127U);
    put_pair(iq3_xxs_lattice, qs[0], qs[1], scale_of(d, word >> 28, 0.5F), signs, out + 8 * i);
  }
}

// d; qs[64]; qh[8] (a high bit a vector); signs[32]; scales[4], a nibble for 32 elements
void decode_iq3_s(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  const auto vector = [block](int i) {
    return block[2 + i] | (block[66 + i / 8] >> i % 8 & 1U) << 8;
  };
  for (int i = 0; i < 32; ++i) {
    const float scale = d * static_cast<float>(1U + 2U * nibble(block + 106, i / 4));
    put_pair(iq3_s_lattice, vector(2 * i), vector(2 * i + 1), scale, block[74 + i], out + 8 * i);
  }
}

// d; qs[32]; u16 qh[8] for 32 elements each: three high bits a vector, three of the scale, the
// shift
void decode_iq1_s(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t qh = load_u16(block + 34 + i / 4 * 2);
    const std::uint32_t high = qh >> 3 * (i % 4) & 7U;
    const float scale = d * static_cast<float>(2U * (qh >> 12 & 7U) + 1U);
    put_shifted(block[2 + i] | high << 8, scale, (qh & 0x8000U) != 0, out + 8 * i);
  }
}

// qs[32]; qh[16] (a nibble a vector: three high bits and the shift); four u16 scales of three bits
// for 16 elements, in whose top nibbles lies the f16 d
void decode_iq1_m(const std::uint8_t* block, float* out) {
  const std::uint8_t* scales = block + 48;
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= (load_u16(scales + 2 * i) >> 12) << 4 * i;
  const float d = f16_to_f32(static_cast<std::uint16_t>(bits));
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t high = nibble(block + 32, i);
    const std::uint32_t code = load_u16(scales + i / 8 * 2) >> 3 * (i / 2 % 4) & 7U;
    const float scale = d * static_cast<float>(2U * code + 1U);
    put_shifted(block[i] | (high & 7U) << 8, scale, (high & 8U) != 0, out + 8 * i);
  }
}

}  // namespace fewbit
