// SPDX-License-Identifier: Apache-2.0
#include "canonical/pack_rows.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace fewbit {
namespace {

Tensor bytes_of(Shape shape, const std::vector<unsigned>& values) {
  OwnedTensor out = *allocate_tensor(DType::u8, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i) out.bytes[i] = static_cast<std::byte>(values[i]);
  return out.tensor;
}

// Code j of a row of `bits` bits a code, low bits first.
unsigned code_at(const Tensor& rows, std::int64_t row, std::int64_t j, int bits) {
  const auto row_bytes = rows.view.shape[1];
  const auto byte = std::to_integer<unsigned>(
      rows.view.bytes[static_cast<std::size_t>(row * row_bytes + j * bits / 8)]);
  return byte >> (j * bits % 8) & ((1U << bits) - 1U);
}

TEST(PackRows, TwoRowsAByteBecomeTwoColumnsAByte) {
  // Rows 0 and 1, then 2 and 3; 3 columns.
  const Tensor codes = bytes_of({2, 3}, {0x10, 0x32, 0x54, 0x98, 0xBA, 0xDC});
  const Tensor rows = *unpack_row_pairs(codes, 4, 3);
  EXPECT_EQ(rows.view.shape, (Shape{4, 2}));
  const unsigned want[4][3] = {{0, 2, 4}, {1, 3, 5}, {8, 0xA, 0xC}, {9, 0xB, 0xD}};
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(code_at(rows, i, j, 4), want[i][j]) << i << j;
  }
}

TEST(PackRows, FourRowsAByteStandAQuarterOfTheRowsApart) {
  // n = 8, k = 5: byte (r, j) holds rows r, 2 + r, 4 + r and 6 + r.
  std::vector<unsigned> bytes;
  const auto code = [](std::int64_t row, std::int64_t j) {
    return static_cast<unsigned>((row * 3 + j) % 4);
  };
  for (std::int64_t r = 0; r < 2; ++r) {
    for (std::int64_t j = 0; j < 5; ++j) {
      unsigned byte = 0;
      for (int q = 0; q < 4; ++q) byte |= code(q * 2 + r, j) << (2 * q);
      bytes.push_back(byte);
    }
  }
  const Tensor rows = *unpack_row_quarters(bytes_of({2, 5}, bytes), 8, 5);
  EXPECT_EQ(rows.view.shape, (Shape{8, 2}));
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) EXPECT_EQ(code_at(rows, i, j, 2), code(i, j)) << i << j;
  }
}

TEST(PackRows, SwappedNibblesChangePlaces) {
  const Tensor rows = *swap_nibbles(bytes_of({1, 3}, {0x12, 0xF0, 0x0F}));
  EXPECT_EQ(std::to_integer<unsigned>(rows.view.bytes[0]), 0x21U);
  EXPECT_EQ(std::to_integer<unsigned>(rows.view.bytes[1]), 0x0FU);
  EXPECT_EQ(std::to_integer<unsigned>(rows.view.bytes[2]), 0xF0U);
}

}  // namespace
}  // namespace fewbit
