// SPDX-License-Identifier: Apache-2.0
// scale_fmt ue8m0 with scales in a float type: kernels read their exponents alone.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/convert.hpp"
#include "core/float_types.hpp"
#include "scheme/fp8_config.hpp"
#include "scheme/scale_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

bool is_power_of_two(float value) {
  int exponent = 0;
  return std::isfinite(value) && std::frexp(std::fabs(value), &exponent) == 0.5F;
}

void validate_module_powers(Validation& validation, const Module& module,
                            const std::string& where) {
  const auto names = scale_parts(module);
  if (names.empty()) return;
  const TensorInfo* info = validation.checkpoint.find(module.part(names.front()));
  if (info == nullptr || !is_16_or_32_bit_float(info->dtype)) return;
  const Tensor tensor = validation.checkpoint.tensor(*info);
  std::vector<float> values(tensor.view.bytes.size() * 8 /
                            static_cast<std::size_t>(dtype_bits(info->dtype)));
  const auto read = convert_to_f32(info->dtype, tensor.view.bytes, values);
  validation.checkpoint.release(*info);
  if (!read) return;
  std::size_t others = 0;
  float first = 0;
  for (const float value : values) {
    if (is_power_of_two(value) || std::isnan(value)) continue;
    if (others++ == 0) first = value;
  }
  if (others == 0) return;
  validation.add(module, Level::warning, "scale-not-power-of-two", info->name,
                 fmt::format("{} of {} scales, the first {:g}", others, values.size(), first),
                 fmt::format("powers of two, as {} says with scale_fmt ue8m0", where),
                 double(others));
}

}  // namespace

void validate_powers_of_two(Validation& validation) {
  if (validation.depth < Depth::scales) return;
  const auto declared = read_declared(validation.checkpoint);
  if (!declared) return;
  const auto config = read_fp8_config(*declared);
  if (!config || config->scale_format != "ue8m0") return;
  for (const Module& module : validation.identified.modules) {
    const bool f8 = dtype_name(module.scheme.weight).starts_with("f8_");
    if (module.unreadable.empty() && module.scheme.quantized() && f8) {
      validate_module_powers(validation, module, config->where);
    }
  }
}

}  // namespace fewbit
