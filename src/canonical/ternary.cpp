// SPDX-License-Identifier: Apache-2.0
// BitNet: byte (r, j) holds rows r, n/4 + r, n/2 + r and 3n/4 + r of column j, low bits first.
#include <fmt/format.h>

#include <cstring>

#include "canonical/pack_rows.hpp"
#include "canonical/parts.hpp"
#include "canonical/storage.hpp"

namespace fewbit {

Result<QuantizedTensor> canonicalize_ternary(const Checkpoint& checkpoint, const Module& module,
                                             std::int64_t /*fused_expert*/) {
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  made.scheme.packing = Packing::none;
  FEWBIT_TRY(const Tensor codes, part_tensor(checkpoint, module, "weight"));
  const std::string name(module.part("weight"));
  FEWBIT_TRY(check_part_dtype(codes, DType::u8, name));
  const Shape expected = {module.n / 4, module.k};
  if (codes.view.shape != expected || module.n % 4 != 0) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("shape is {}, expected {}", shape_text(codes.view.shape), shape_text(expected)),
        name};
  }
  FEWBIT_TRY(made.codes, unpack_row_quarters(codes, module.n, module.k));
  FEWBIT_TRY(const float divisor, read_factor(checkpoint, module, "weight_scale", -1));
  if (divisor == 0.0F) {
    return Error{ErrorCode::corrupt, "weight_scale is 0, and weights are divided by it",
                 std::string(module.part("weight_scale"))};
  }
  const float factor = 1.0F / divisor;
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(DType::f32, {1, 1}));
  std::memcpy(scales.bytes.data(), &factor, sizeof(factor));
  made.scales = scales.tensor;
  if (const auto checked = check_quantized(made); !checked) {
    return Error{checked.error().code, checked.error().what, module.name};
  }
  return made;
}

}  // namespace fewbit
