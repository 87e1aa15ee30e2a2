// SPDX-License-Identifier: Apache-2.0
// Entries of lists that are a slip of the pen away from names in the file.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fewbit {

class NearNames {
 public:
  explicit NearNames(std::span<const std::string_view> modules);

  // The entry with its only word that no name has replaced by one that differs in a letter, two
  // swapped letters or its underscores. Other numbers, plurals and projections (q_proj, k_proj) are
  // other names. Empty: there is no such word.
  std::vector<std::string> corrections(std::string_view entry) const;

 private:
  bool knows(std::string_view word) const;

  std::set<std::string, std::less<>> words_;  // components of the names
};

// Whether an entry speaks of layers that a model with so many lacks: "model.layers.61*",
// "re:.*\.61\.".
bool is_behind_last_layer(std::string_view entry, std::int64_t layers);

}  // namespace fewbit
