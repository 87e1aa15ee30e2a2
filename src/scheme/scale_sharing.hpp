// SPDX-License-Identifier: Apache-2.0
// Which weights share a scale, in the words of configs.
#pragma once

#include <optional>
#include <string_view>

#include "fewbit/scheme.hpp"

namespace fewbit {

struct Sharing {
  std::string_view name;  // "tensor", "channel", "group", "tensor_group", "block"; others fit all
  std::optional<std::int64_t> group_size;
  std::optional<Granularity> block;
};

// Whether a module with scales has them as a config says, sizes of groups and blocks aside. Of a
// small matrix several words mean the same.
bool sharing_fits(const Sharing& said, const Module& module);

}  // namespace fewbit
