// SPDX-License-Identifier: Apache-2.0
#include "canonical/pack_rows.hpp"

#include "core/checked.hpp"

namespace fewbit {

Result<Tensor> unpack_row_pairs(const Tensor& codes, std::int64_t n, std::int64_t k) {
  const std::int64_t row_bytes = ceil_div<std::int64_t>(k, 2);
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, {n, row_bytes}));
  const std::byte* source = codes.view.bytes.data();
  std::byte* target = out.bytes.data();
  for (std::int64_t pair = 0; pair < n / 2; ++pair) {
    std::byte* upper = target + 2 * pair * row_bytes;
    std::byte* lower = upper + row_bytes;
    const std::byte* bytes = source + pair * k;
    for (std::int64_t j = 0; j < k; ++j) {
      const int shift = j % 2 == 0 ? 0 : 4;
      upper[j / 2] |= (bytes[j] & std::byte{0x0F}) << shift;
      lower[j / 2] |= (bytes[j] >> 4) << shift;
    }
  }
  return out.tensor;
}

Result<Tensor> unpack_row_quarters(const Tensor& codes, std::int64_t n, std::int64_t k) {
  const std::int64_t row_bytes = ceil_div<std::int64_t>(k, 4);
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, {n, row_bytes}));
  const std::int64_t quarter = n / 4;
  for (std::int64_t row = 0; row < n; ++row) {
    const std::byte* source = codes.view.bytes.data() + row % quarter * k;
    std::byte* target = out.bytes.data() + row * row_bytes;
    const auto from = static_cast<int>(row / quarter * 2);
    for (std::int64_t j = 0; j < k; ++j) {
      const auto to = static_cast<int>(j % 4 * 2);
      target[j / 4] |= ((source[j] >> from) & std::byte{3}) << to;
    }
  }
  return out.tensor;
}

Result<Tensor> swap_nibbles(const Tensor& codes) {
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, codes.view.shape));
  for (std::size_t i = 0; i < out.bytes.size(); ++i) {
    const std::byte byte = codes.view.bytes[i];
    out.bytes[i] = (byte << 4) | (byte >> 4);
  }
  return out.tensor;
}

}  // namespace fewbit
