// SPDX-License-Identifier: Apache-2.0
// Which plain matrices contradict a config that quantizes what it does not leave out.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "scheme/reader.hpp"

namespace fewbit {

class TakenMatrices {
 public:
  explicit TakenMatrices(const Inventory& inventory);

  // How serious it is that a module is plain although nothing leaves it out; empty: it is not
  // taken by quantizers, or is a token-prediction layer's. A router is information, for exports
  // forget to list it; so is a matrix that only some quantizers take, unless the config names it
  // (`named`) or the same matrix has codes in another layer. `by_family`: the producer quantizes
  // what its list for the family says (GPTQ, AWQ, AutoRound), which no file holds.
  std::optional<Level> level(const Draft& draft, bool named, bool by_family) const;

 private:
  const Inventory& inventory_;
  std::set<std::string> with_codes_;  // names of quantized modules without their numbers
};

}  // namespace fewbit
