// SPDX-License-Identifier: Apache-2.0
// The second factor of NVFP4 that is not ModelOpt's: a divisor, or a factor in another type.
#include <fmt/format.h>

#include "scheme/fp4.hpp"
#include "scheme/validation.hpp"

namespace fewbit {

void validate_fp4_factor(Validation& validation, const Module& module) {
  const TensorInfo* global = validation.checkpoint.find(module.part(fp4_parts(module).global));
  if (global == nullptr) return;
  const DType dtype = global->dtype;
  const std::string found = fmt::format("{} {}", dtype_name(dtype), shape_text(global->shape));
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) {
    validation.add(module, Level::error, "global-scale-dtype", global->name, found,
                   "f32, bf16 or f16");
    return;
  }
  const auto count = static_cast<std::int64_t>(global->bytes * 8) / dtype_bits(dtype);
  if (count == 1 || (module.experts > 0 && count == module.experts)) return;
  validation.add(module, Level::error, "global-scale-shape", global->name, found,
                 module.experts > 0 ? fmt::format("one, or [{}]", module.experts) : "one");
}

}  // namespace fewbit
