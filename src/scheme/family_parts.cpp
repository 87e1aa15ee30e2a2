// SPDX-License-Identifier: Apache-2.0
#include "scheme/family_parts.hpp"

#include <algorithm>

namespace fewbit {
namespace {

struct Family {
  std::string_view model_type;
  FamilyPart part;
};

constexpr Family families[] = {
    {"deepseek_v3", FamilyPart::choice_bias},
    {"deepseek_v32", FamilyPart::choice_bias},
    {"deepseek_v4", FamilyPart::choice_bias},
    {"ernie4_5_moe", FamilyPart::choice_bias},
    {"glm4_moe", FamilyPart::choice_bias},
    {"glm4_moe_lite", FamilyPart::choice_bias},
    {"glm_moe_dsa", FamilyPart::choice_bias},
    {"kimi_k2", FamilyPart::choice_bias},
    {"kimi_linear", FamilyPart::choice_bias},
    {"laguna", FamilyPart::choice_bias},
    {"minimax_m2", FamilyPart::choice_bias},
    {"minimax_m3", FamilyPart::choice_bias},
    {"nemotron_h", FamilyPart::choice_bias},
    {"llama4_text", FamilyPart::shared_expert},
    {"qwen2_moe", FamilyPart::shared_expert},
    {"qwen3_next", FamilyPart::shared_expert},
    {"qwen3_5_moe", FamilyPart::shared_expert},
    {"qwen3_5_moe_text", FamilyPart::shared_expert},
    {"qwen2_moe", FamilyPart::shared_expert_gate},
    {"qwen3_next", FamilyPart::shared_expert_gate},
    {"qwen3_5_moe", FamilyPart::shared_expert_gate},
    {"qwen3_5_moe_text", FamilyPart::shared_expert_gate},
    {"gpt_oss", FamilyPart::router_bias},
    {"gpt_oss", FamilyPart::sinks},
};

}  // namespace

bool family_has(std::string_view model_type, FamilyPart part) {
  return std::any_of(std::begin(families), std::end(families), [&](const Family& family) {
    return family.model_type == model_type && family.part == part;
  });
}

}  // namespace fewbit
