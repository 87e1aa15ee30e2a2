// SPDX-License-Identifier: Apache-2.0
// MoE layers and calls of a golden set as the library's own types.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fewbit/moe.hpp"
#include "golden/case.hpp"

namespace fewbit::golden {

struct MoeLayerCase {
  MoeWeights weights;
  MoeProblem problem;
};

// Input roles; packed weights have scales as plain [experts, rows, k / 16] grids.
struct MoeTensorNames {
  std::string w13, w13_scales;
  std::string w2, w2_scales;
};
Result<MoeLayerCase> load_moe_layer(const GoldenCase& c, const MoeTensorNames& names);

struct MoeCall {
  std::int64_t tokens = 0;
  Tensor hidden;
  std::vector<float> hidden_f32;
  std::vector<std::int32_t> ids;
  std::vector<float> router_weights;
  std::vector<std::int32_t> expert_map;
};
Result<MoeCall> load_moe_call(const GoldenCase& c, const std::string& hidden);

// The set's table before the call; empty when the case has none.
struct AmaxCase {
  std::vector<float> values;
  std::int64_t layers = 0;
  std::int64_t layer = 0;
};
Result<AmaxCase> load_amax(const GoldenCase& c);

// A float tensor's elements.
Result<std::vector<float>> as_f32(const Tensor& tensor);

}  // namespace fewbit::golden
