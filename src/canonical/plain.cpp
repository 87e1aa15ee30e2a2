// SPDX-License-Identifier: Apache-2.0
// 16/32-bit values as they are.
#include <fmt/format.h>

#include "canonical/storage.hpp"
#include "canonical/transpose.hpp"

namespace fewbit {

Result<QuantizedTensor> canonicalize_plain(const Checkpoint& checkpoint, const Module& module,
                                           std::int64_t fused_expert) {
  FEWBIT_TRY(Tensor values, part_tensor(checkpoint, module, "weight"));
  const std::string_view name = module.part("weight");
  const std::size_t rank = fused_expert < 0 ? 2 : 3;
  if (values.view.shape.size() != rank) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("shape is {}, expected {} dimensions", shape_text(values.view.shape), rank),
        std::string(name)};
  }
  if (fused_expert >= 0) values = first_dim_slice(values, fused_expert);
  if (module.transposed) {
    FEWBIT_TRY(values, transposed_copy(values));
  }
  Result<QuantizedTensor> made = make_plain(values.view.shape[0], values.view.shape[1], values);
  if (!made) return Error{made.error().code, made.error().what, std::string(name)};
  return made;
}

}  // namespace fewbit
