// SPDX-License-Identifier: Apache-2.0
#include "canonical/code_row.hpp"

#include <array>

#include "core/convert.hpp"
#include "core/float_convert.hpp"
#include "core/float_types.hpp"

namespace fewbit {
namespace {

// Value of every code of a type of at most 8 bits.
using Table = std::array<float, 256>;

template <float (*decode)(std::uint8_t)>
Table table_of(int bits) {
  Table table{};
  for (unsigned code = 0; code < (1U << bits); ++code) {
    table[code] = decode(static_cast<std::uint8_t>(code));
  }
  return table;
}

float unsigned_value(std::uint8_t code) { return static_cast<float>(code); }
float signed_value(std::uint8_t code) { return static_cast<float>(static_cast<std::int8_t>(code)); }
float signed_nibble(std::uint8_t code) { return static_cast<float>((code ^ 8) - 8); }

// nullptr: no type of at most 8 bits with a value.
const Table* find_table(DType dtype) {
  static const Table unsigned_table = table_of<unsigned_value>(8);
  static const Table i8_table = table_of<signed_value>(8);
  static const Table i4_table = table_of<signed_nibble>(4);
  static const Table e2m1_table = table_of<f4_e2m1_to_f32>(4);
  static const Table nf3_table = table_of<nf3_to_f32>(3);
  static const Table nf4_table = table_of<nf4_to_f32>(4);
  static const Table e2m3_table = table_of<f6_e2m3_to_f32>(6);
  static const Table e3m2_table = table_of<f6_e3m2_to_f32>(6);
  static const Table e4m3_table = table_of<f8_e4m3_to_f32>(8);
  static const Table e5m2_table = table_of<f8_e5m2_to_f32>(8);
  static const Table e4m3fnuz_table = table_of<f8_e4m3fnuz_to_f32>(8);
  static const Table e5m2fnuz_table = table_of<f8_e5m2fnuz_to_f32>(8);
  switch (dtype) {
    case DType::u1:
    case DType::u2:
    case DType::u3:
    case DType::u4:
    case DType::u5:
    case DType::u6:
    case DType::u7:
    case DType::u8:
      return &unsigned_table;
    case DType::i8:
      return &i8_table;
    case DType::i4:
      return &i4_table;
    case DType::f4_e2m1:
      return &e2m1_table;
    case DType::nf3:
      return &nf3_table;
    case DType::nf4:
      return &nf4_table;
    case DType::f6_e2m3:
      return &e2m3_table;
    case DType::f6_e3m2:
      return &e3m2_table;
    case DType::f8_e4m3:
      return &e4m3_table;
    case DType::f8_e5m2:
      return &e5m2_table;
    case DType::f8_e4m3fnuz:
      return &e4m3fnuz_table;
    case DType::f8_e5m2fnuz:
      return &e5m2fnuz_table;
    default:
      return nullptr;
  }
}

// Code j stands at bits [j * width, (j + 1) * width) of the row.
void look_up(const Table& table, int width, std::span<const std::byte> bytes,
             std::span<float> out) {
  const unsigned mask = (1U << width) - 1U;
  std::size_t bit = 0;
  for (float& value : out) {
    const std::size_t byte = bit / 8;
    unsigned word = std::to_integer<unsigned>(bytes[byte]);
    if (byte + 1 < bytes.size()) word |= std::to_integer<unsigned>(bytes[byte + 1]) << 8U;
    value = table[(word >> (bit % 8)) & mask];
    bit += static_cast<std::size_t>(width);
  }
}

}  // namespace

bool has_code_values(DType dtype) {
  return is_16_or_32_bit_float(dtype) || find_table(dtype) != nullptr;
}

std::uint64_t code_row_bytes(DType dtype, std::int64_t k) {
  return (static_cast<std::uint64_t>(k) * static_cast<std::uint64_t>(dtype_bits(dtype)) + 7) / 8;
}

void decode_codes(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  if (const Table* table = find_table(dtype)) {
    look_up(*table, dtype_bits(dtype), bytes, out);
  } else {
    // Sizes agree by the precondition, so there is nothing to report.
    static_cast<void>(convert_to_f32(dtype, bytes, out));
  }
}

}  // namespace fewbit
