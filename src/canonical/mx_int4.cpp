// SPDX-License-Identifier: Apache-2.0
// AutoRound's mx_int4: a sign and three bits of quarters in a nibble, exponents for groups of 32.
#include <array>

#include "canonical/storage.hpp"

namespace fewbit {
namespace {

// Sign and magnitude as two's complement.
constexpr unsigned signed_nibble(unsigned code) {
  const unsigned magnitude = code & 7U;
  return (code & 8U) == 0 ? magnitude : (16U - magnitude) & 15U;
}

constexpr std::array<std::byte, 256> signed_pairs = [] {
  std::array<std::byte, 256> table{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    table[byte] = static_cast<std::byte>(signed_nibble(byte & 15U) | signed_nibble(byte >> 4) << 4);
  }
  return table;
}();

}  // namespace

Result<QuantizedTensor> canonicalize_mx_int4(const Checkpoint& checkpoint, const Module& module,
                                             std::int64_t fused_expert) {
  // Codes and exponents stand as those of MXFP4 do.
  FEWBIT_TRY(QuantizedTensor made, canonicalize_fp4(checkpoint, module, fused_expert));
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, made.codes.view.shape));
  const auto from = made.codes.view.bytes;
  for (std::size_t i = 0; i < from.size(); ++i) {
    codes.bytes[i] = signed_pairs[std::to_integer<std::size_t>(from[i])];
  }
  made.codes = std::move(codes.tensor);
  made.global_scale = 0.25F;
  made.stored_global_scale = 0.25F;
  return made;
}

}  // namespace fewbit
