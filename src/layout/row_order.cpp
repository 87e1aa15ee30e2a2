// SPDX-License-Identifier: Apache-2.0
#include "layout/row_order.hpp"

#include <string>

#include "core/ascii.hpp"

namespace fewbit {

Result<W13Order> w13_order_from_name(std::string_view name) {
  const std::string lower = lower_ascii(name);
  if (lower == "w13" || lower == "up_gate") return W13Order::up_gate;
  if (lower == "w31" || lower == "gate_up") return W13Order::gate_up;
  return Error{ErrorCode::invalid_argument,
               "w13 order '" + std::string(name) +
                   "', expected 'w13' or 'up_gate' (up rows first), 'w31' or 'gate_up' (gate rows "
                   "first)",
               ""};
}

}  // namespace fewbit
