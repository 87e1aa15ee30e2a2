// SPDX-License-Identifier: Apache-2.0
// A matrix for the lane16 kernels: codes, scales and zero points with their meaning written for
// reading, and its packed form.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/float_convert.hpp"
#include "kernels/cpu/lane16.hpp"
#include "layout/cpu_lane16.hpp"
#include "layout/pack.hpp"

namespace fewbit::test {

struct Lane16Form {
  const char* name;
  Lane16Codes codes = Lane16Codes::nvfp4;
  Lane16Scale scale = Lane16Scale::f8_e4m3;
  std::int64_t group = 16;  // 0: one over all of k
  bool offset_codes = false;

  bool zeros() const {
    return codes == Lane16Codes::int4_zeros || codes == Lane16Codes::int8_zeros;
  }
  int code_bits() const { return lane16_code_bits(codes); }
};

class Lane16Matrix {
 public:
  Lane16Matrix(const Lane16Form& form, Dims dims, float global_scale)
      : form_(form),
        dims_(dims),
        global_(global_scale),
        group_(form.group == 0 ? dims.k : form.group),
        codes_(at(dims.n * dims.k)),
        scales_(at(dims.n * groups())),
        zeros_(at(dims.n * groups())) {}

  Dims dims() const { return dims_; }
  std::int64_t groups() const { return ceil_div(dims_.k, group_); }
  std::uint8_t& code(std::int64_t n, std::int64_t k) { return codes_[at(n * dims_.k + k)]; }
  // The bits of a scale in its format. Of f32_blocks the first row of a block counts.
  std::uint32_t& scale(std::int64_t n, std::int64_t g) { return scales_[at(n * groups() + g)]; }
  std::uint8_t& zero(std::int64_t n, std::int64_t g) { return zeros_[at(n * groups() + g)]; }

  // What a code less its zero point, and a scale times the global one, count.
  float code_of(std::int64_t n, std::int64_t k) {
    return code_value(code(n, k)) - (form_.zeros() ? integer(zero(n, k / group_)) : 0.0F);
  }
  float scale_of(std::int64_t n, std::int64_t g) { return scale_value(n, g) * global_; }

  // The canonical value: the products rounded to f32.
  float value(std::int64_t n, std::int64_t k) { return code_of(n, k) * scale_of(n, k / group_); }

  // Random codes of every value but NaN, scales around 1, zero points of every code.
  void fill(std::mt19937& random) {
    for (std::uint8_t& code : codes_) {
      code = static_cast<std::uint8_t>(random() & ((1U << form_.code_bits()) - 1));
      if (form_.codes == Lane16Codes::f8_e4m3 && (code & 0x7fU) == 0x7fU) code ^= 1U;
    }
    for (std::uint8_t& zero : zeros_)
      zero = static_cast<std::uint8_t>(random() & (form_.code_bits() == 4 ? 15U : 255U));
    if (form_.code_bits() == 4 && !form_.offset_codes)
      for (std::uint8_t& zero : zeros_) zero = static_cast<std::uint8_t>(int{zero} - 8);
    for (std::uint32_t& scale : scales_) scale = random_scale(random);
  }

  // Exactly as large as the layout says, so that the address sanitizer sees reads past the end.
  Lane16Blocks pack() {
    const Dims grid{.n = dims_.n, .k = groups()};
    const auto code_at = [this](std::int64_t n, std::int64_t k) { return code(n, k); };
    pack_codes(code_at);
    pack_scales(grid);
    pack_to<CpuLane16Groups<8>>(
        grid, [this](std::int64_t n, std::int64_t g) { return zero(n, g); }, packed_zeros_);
    const auto bytes = [](const AlignedBuffer& buffer) {
      return reinterpret_cast<const std::uint8_t*>(buffer.data());
    };
    return {.codes = bytes(packed_codes_),
            .scales = bytes(packed_scales_),
            .zeros = form_.zeros() ? bytes(packed_zeros_) : nullptr,
            .scale_format = form_.scale,
            .offset_codes = form_.offset_codes,
            .global_scale = global_,
            .blocks = (dims_.n + 15) / 16,
            .k = dims_.k,
            .group = group_};
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  // An integer code or zero point as it counts.
  float integer(std::uint8_t bits) const {
    if (form_.offset_codes) return static_cast<float>(bits) - (form_.code_bits() == 4 ? 8 : 128);
    return static_cast<float>(static_cast<std::int8_t>(bits));
  }
  float code_value(std::uint8_t code) const {
    if (form_.codes == Lane16Codes::nvfp4 || form_.codes == Lane16Codes::f4_e2m1)
      return f4_e2m1_to_f32(code);
    if (form_.codes == Lane16Codes::f8_e4m3) return f8_e4m3_to_f32(code);
    if (form_.codes == Lane16Codes::nf3) return nf3_to_f32(code);
    if (form_.codes == Lane16Codes::ternary) return static_cast<float>(code) - 1.0F;
    if (form_.code_bits() == 4 && !form_.offset_codes)
      return static_cast<float>(static_cast<int>(code ^ 8U) - 8);
    return integer(code);
  }
  float scale_value(std::int64_t n, std::int64_t g) {
    const bool shared = form_.scale == Lane16Scale::f32_blocks;
    const std::uint32_t bits = scale(shared ? n / 16 * 16 : n, g);
    switch (form_.scale) {
      case Lane16Scale::f8_e4m3:
        return f8_e4m3_to_f32(static_cast<std::uint8_t>(bits));
      case Lane16Scale::f8_e8m0:
        return f8_e8m0_to_f32(static_cast<std::uint8_t>(bits));
      case Lane16Scale::f16:
        return f16_to_f32(static_cast<std::uint16_t>(bits));
      case Lane16Scale::bf16:
        return bf16_to_f32(static_cast<std::uint16_t>(bits));
      default:
        return std::bit_cast<float>(bits);
    }
  }
  std::uint32_t random_scale(std::mt19937& random) const {
    const float value =
        static_cast<float>(1 + random() % 64) / 64 * (random() % 4 == 0 ? -1.0F : 1.0F);
    switch (form_.scale) {
      case Lane16Scale::f8_e4m3:
        return static_cast<std::uint32_t>(0x30 + random() % 32);
      case Lane16Scale::f8_e8m0:
        return static_cast<std::uint32_t>(120 + random() % 12);
      case Lane16Scale::f16:
        return f32_to_f16(value);
      case Lane16Scale::bf16:
        return f32_to_bf16(value);
      default:
        return std::bit_cast<std::uint32_t>(value * 1.1F);
    }
  }

  // Of rows that are not there: zero weights under a scale of the whole block.
  int padding() const {
    if (form_.scale != Lane16Scale::f32_blocks) return 0;
    if (form_.codes == Lane16Codes::ternary) return 0x55;
    return !form_.offset_codes ? 0 : form_.code_bits() == 4 ? 0x88 : 0x80;
  }
  template <Layout L, class Code>
  static void pack_to(Dims dims, const Code& code, AlignedBuffer& to, int padding = 0) {
    to = *AlignedBuffer::allocate(static_cast<std::uint64_t>(L::bytes(dims)));
    std::memset(to.data(), padding, to.size());
    fewbit::pack<L>(dims, code, to.span());
  }
  template <class Code>
  void pack_codes(const Code& code_at) {
    if (form_.code_bits() == 2) pack_to<CpuPairLane16>(dims_, code_at, packed_codes_, padding());
    if (form_.code_bits() == 4) pack_to<CpuF4Lane16>(dims_, code_at, packed_codes_, padding());
    if (form_.code_bits() == 8) pack_to<CpuByteLane16>(dims_, code_at, packed_codes_, padding());
    if (form_.code_bits() != 3) return;
    // Bits 16 u to 16 u + 15 of a row of codes.
    const auto unit_at = [&](std::int64_t n, std::int64_t u) {
      std::uint64_t bits = 0;
      for (int bit = 0; bit < 16; ++bit) {
        const std::int64_t at_bit = u * 16 + bit;
        bits |= std::uint64_t{code_at(n, at_bit / 3) >> (at_bit % 3) & 1U} << bit;
      }
      return bits;
    };
    pack_to<CpuTripleLane16>(CpuTripleLane16::of_codes(dims_), unit_at, packed_codes_);
  }
  void pack_scales(Dims grid) {
    const auto bits = [this](std::int64_t n, std::int64_t g) { return scale(n, g); };
    if (form_.scale == Lane16Scale::f32_blocks) {
      const Dims blocks{.n = ceil_div(grid.n, std::int64_t{16}), .k = grid.k};
      packed_scales_ = *AlignedBuffer::allocate(static_cast<std::uint64_t>(blocks.n * grid.k * 4));
      for (std::int64_t b = 0; b < blocks.n; ++b)
        for (std::int64_t g = 0; g < grid.k; ++g)
          std::memcpy(packed_scales_.data() + (b * grid.k + g) * 4, &scale(b * 16, g), 4);
      return;
    }
    const std::int64_t bytes = lane16_scale_bytes(form_.scale);
    if (bytes == 1) pack_to<CpuLane16Groups<8>>(grid, bits, packed_scales_);
    if (bytes == 2) pack_to<CpuLane16Groups<16>>(grid, bits, packed_scales_);
    if (bytes == 4) pack_to<CpuLane16Groups<32>>(grid, bits, packed_scales_);
  }

  Lane16Form form_;
  Dims dims_;
  float global_;
  std::int64_t group_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::uint32_t> scales_;
  std::vector<std::uint8_t> zeros_;
  AlignedBuffer packed_codes_, packed_scales_, packed_zeros_;
};

}  // namespace fewbit::test
