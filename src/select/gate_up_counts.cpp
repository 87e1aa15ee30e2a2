// SPDX-License-Identifier: Apache-2.0
#include "select/gate_up_counts.hpp"

#include <algorithm>
#include <optional>

#include "canonical/one_global.hpp"
#include "canonical/one_order.hpp"

namespace fewbit {
namespace {

// Whether gate and up have stored act-orders and these differ. Empty: no two are stored.
std::optional<bool> stored_orders_differ(const Checkpoint& source,
                                         const LayerExperts::Modules& of) {
  if (of.gate == nullptr || of.up == nullptr) return std::nullopt;
  for (const char* suffix : {"g_idx", "weight_g_idx"}) {
    const TensorInfo* gate = source.find(of.gate->part(suffix));
    const TensorInfo* up = source.find(of.up->part(suffix));
    if (gate == nullptr || up == nullptr) continue;
    return !std::ranges::equal(source.tensor(*gate).view.bytes, source.tensor(*up).view.bytes);
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<std::int64_t>> two_order_experts(const Checkpoint& source,
                                                    const LayerExperts& layer) {
  std::vector<std::int64_t> experts;
  for (std::int64_t e = 0; e < layer.count(); ++e) {
    const auto differ = stored_orders_differ(source, layer.modules(e));
    if (!differ) continue;
    if (*differ) {
      FEWBIT_TRY(const ExpertWeights expert, layer.read(source, e));
      if (keeps_two_orders(expert)) experts.push_back(e);
    }
    layer.release(source, e);
  }
  return experts;
}

Result<std::vector<std::int64_t>> two_scale_experts(const Checkpoint& source,
                                                    const LayerExperts& layer) {
  std::vector<std::int64_t> experts;
  for (std::int64_t e = 0; e < layer.count(); ++e) {
    FEWBIT_TRY(const ExpertWeights expert, layer.read(source, e));
    if (keeps_two_globals(expert)) experts.push_back(e);
    layer.release(source, e);
  }
  return experts;
}

}  // namespace fewbit
