// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/prepared_folder.hpp"

#include <fmt/format.h>

#include <system_error>

namespace fewbit {

bool holds_prepared_model(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / prepared_manifest_name, ignored);
}

Result<void> refuse_prepared(const std::filesystem::path& folder, std::string_view step) {
  if (!holds_prepared_model(folder)) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("a prepared model already ({}): its experts are laid out for kernels; "
                           "{} takes the checkpoint that it was made from",
                           prepared_manifest_name, step),
               folder.string()};
}

}  // namespace fewbit
