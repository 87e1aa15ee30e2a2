// SPDX-License-Identifier: Apache-2.0
// The families that fewbit can run.
#include <fmt/format.h>

#include <array>

#include "core/quote.hpp"
#include "model/families/family.hpp"

namespace fewbit {

std::span<const Family* const> all_families() {
  static constexpr std::array families{
      &qwen3_moe_family,
  };
  return families;
}

Result<const Family*> find_family(const ModelConfig& config, const std::string& where) {
  std::string known;
  for (const Family* family : all_families()) {
    if (family->model_type == config.model_type) return family;
    known += (known.empty() ? "" : ", ") + std::string(family->model_type);
  }
  return Error{ErrorCode::unsupported,
               fmt::format("model_type {} is known, but not run: eval and generate run {}",
                           quote(config.model_type), known),
               where};
}

}  // namespace fewbit
