// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "scheme/reader.hpp"

namespace fewbit {

const TensorInfo* Draft::tensor(std::string_view suffix) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (module.parts[i].suffix == suffix) return tensors[i];
  }
  return nullptr;
}

void Draft::claim(Scheme scheme) {
  claimed = true;
  module.scheme = scheme;
  module.evidence.clear();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    module.evidence += fmt::format("{}{} {} {}", i == 0 ? "" : " + ", module.parts[i].suffix,
                                   dtype_name(tensors[i]->dtype), shape_text(tensors[i]->shape));
  }
}

void Draft::refuse(Scheme scheme, std::string why) {
  claim(scheme);
  module.unreadable = std::move(why);
}

}  // namespace fewbit
