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

}  // namespace fewbit
