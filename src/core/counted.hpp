// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace fewbit {

// "1 shard", "2 shards"; `many` where it is no plain plural: "1 matrix", "2 matrices".
template <std::integral Number>
std::string counted(Number number, std::string_view one, std::string_view many = "") {
  std::string text = std::to_string(number) + " ";
  if (number == 1) return text += one;
  return many.empty() ? (text += one) += "s" : text += many;
}

}  // namespace fewbit
