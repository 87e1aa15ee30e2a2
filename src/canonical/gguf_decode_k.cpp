// SPDX-License-Identifier: Apache-2.0
// The "K" types: blocks of 256 elements with a 4, 6 or 8-bit scale for every 16 or 32 of them.
#include "canonical/gguf_decode.hpp"

namespace fewbit {
namespace {

struct ScaleMin {
  float scale;
  float min;
};

// Scale and minimum of group j (0..7): 6 bits each, packed in 12 bytes. Groups 4..7 have their low
// four bits in bytes 8..11 and their high two in the top of the bytes of groups 0..3.
ScaleMin scale_min_6bit(const std::uint8_t* b, int j) {
  if (j < 4) return {static_cast<float>(b[j] & 63), static_cast<float>(b[j + 4] & 63)};
  return {static_cast<float>((b[j + 4] & 15) | (b[j - 4] >> 6) << 4),
          static_cast<float>((b[j + 4] >> 4) | (b[j] >> 6) << 4)};
}

// Scale of group j (0..15) of Q3_K, stored with an offset of 32.
int q3_scale(const std::uint8_t* scales, int j) {
  const int low4 = j < 8 ? scales[j] & 15 : scales[j - 8] >> 4;
  const int high2 = scales[8 + j % 4] >> 2 * (j / 4) & 3;
  return (low4 | high2 << 4) - 32;
}

// Two bits of element i of a block of 256: halves of 128 share 32 bytes, four elements a byte.
int two_bits(const std::uint8_t* qs, int i) {
  return qs[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

}  // namespace

// scales[16] (scale low nibble, minimum high nibble); qs[64]; d; dmin
void decode_q2_k(const std::uint8_t* block, float* out) {
  const float d = load_f16(block + 80);
  const float dmin = load_f16(block + 82);
  for (int i = 0; i < 256; ++i) {
    const std::uint8_t packed = block[i / 16];
    const float scale = d * static_cast<float>(packed & 15);
    const float min = dmin * static_cast<float>(packed >> 4);
    out[i] = scale * static_cast<float>(two_bits(block + 16, i)) - min;
  }
}

// hmask[32]; qs[64]; scales[12]; d. The third bit of element i is bit i/32 of hmask byte i%32; when
// it is clear, 4 is subtracted.
void decode_q3_k(const std::uint8_t* block, float* out) {
  const float d = load_f16(block + 108);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(q3_scale(block + 96, i / 16));
    const int high = (block[i % 32] >> (i / 32) & 1) << 2;
    out[i] = scale * static_cast<float>(two_bits(block + 32, i) + high - 4);
  }
}

// d; dmin; scales[12]; qs[128]: 32 bytes hold 32 elements in the low nibbles, then 32 in the high
void decode_q4_k(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min_6bit(block + 4, group);
    const float scale = d * packed.scale;
    const float min = dmin * packed.min;
    const std::uint8_t* qs = block + 16 + group / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      out[32 * group + l] = scale * static_cast<float>(qs[l] >> 4 * (group % 2) & 15) - min;
    }
  }
}

// d; dmin; scales[12]; qh[32]; qs[128]: as Q4_K, the fifth bit of group g in bit g of qh
void decode_q5_k(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  const std::uint8_t* qh = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin packed = scale_min_6bit(block + 4, group);
    const float scale = d * packed.scale;
    const float min = dmin * packed.min;
    const std::uint8_t* qs = block + 48 + group / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      const int code = (qs[l] >> 4 * (group % 2) & 15) | (qh[l] >> group & 1) << 4;
      out[32 * group + l] = scale * static_cast<float>(code) - min;
    }
  }
}

// ql[128]; qh[64]; i8 scales[16]; d. Each 128 elements: 64 bytes of low nibbles, 32 of high pairs.
void decode_q6_k(const std::uint8_t* block, float* out) {
  const float d = load_f16(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int l = i % 32;
    const int low = block[64 * half + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15;
    const int high = block[128 + 32 * half + l] >> 2 * quarter & 3;
    const float scale = d * static_cast<float>(static_cast<std::int8_t>(block[192 + i / 16]));
    out[i] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

// f32 d; i8 qs[256]; i16 bsums[16] (sums for dot products, not needed here)
void decode_q8_k(const std::uint8_t* block, float* out) {
  const float d = float_bits::to_f32(load_u32(block));
  for (int i = 0; i < 256; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[4 + i]));
  }
}

// d; u16 scales_h; scales_l[4]; qs[128]: 16 bytes for each 32 elements, low half then high half
void decode_iq4_xs(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  const std::uint32_t scales_high = load_u16(block + 2);
  for (int group = 0; group < 8; ++group) {
    const int low4 = block[4 + group / 2] >> 4 * (group % 2) & 15;
    const int high2 = static_cast<int>(scales_high >> 2 * group & 3U);
    const float scale = d * static_cast<float>((low4 | high2 << 4) - 32);
    const std::uint8_t* qs = block + 8 + 16 * group;
    for (int j = 0; j < 16; ++j) {
      out[32 * group + j] = scale * static_cast<float>(iq4_nl_to_i8(qs[j] & 15));
      out[32 * group + 16 + j] = scale * static_cast<float>(iq4_nl_to_i8(qs[j] >> 4));
    }
  }
}

}  // namespace fewbit
