// SPDX-License-Identifier: Apache-2.0
// What every MoE layer of a family has, whatever the other layers of a file say.
#pragma once

#include <string>
#include <string_view>

namespace fewbit {

enum class FamilyPart {
  choice_bias,         // what is added to the scores before experts are chosen
  shared_expert,       // of families whose config has no number of them
  shared_expert_gate,  // one value a token that the shared expert is multiplied by
  router_bias,         // of the router's scores
  sinks,               // one value a head beside the attention's scores
};

// `model_type` of config.json, of the model or of its language model.
bool family_has(std::string_view model_type, FamilyPart part);

}  // namespace fewbit
