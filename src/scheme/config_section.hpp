// SPDX-License-Identifier: Apache-2.0
// Typed look-up of a language model's keys in config.json.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"
#include "checkpoint/json_text.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// The keys of a model stand at the top level, or in text_config, llm_config or language_config of a
// multimodal one. A null value counts as absent. Wrong kinds and ranges are errors (corrupt) that
// name the key, what was found and what was expected. Where several keys mean one thing, numbers
// and flags under all of them must be the same, else error inconsistent with both.
class ConfigSection {
 public:
  using Keys = std::initializer_list<std::string_view>;

  // Borrows `root`.
  ConfigSection(const Json& root, std::string where);

  struct Entry {
    std::string_view key;
    const Json* value = nullptr;
    explicit operator bool() const { return value != nullptr; }
  };
  // The first of `keys` that any section has; keys before sections.
  Entry find(Keys keys) const;

  // An integer in [least, most]; empty when absent.
  Result<std::optional<std::int64_t>> integer(Keys keys, std::int64_t least,
                                              std::int64_t most) const;
  // As integer, but absence is an error.
  Result<std::int64_t> required_integer(Keys keys, std::int64_t least, std::int64_t most) const;
  Result<std::optional<double>> number(Keys keys) const;
  Result<std::optional<bool>> boolean(Keys keys) const;
  Result<std::optional<std::string>> string(Keys keys) const;
  // Empty list when absent.
  Result<std::vector<std::int64_t>> integers(Keys keys) const;

  // Error inconsistent when two of `keys` have different values.
  Result<void> agree(Keys keys) const;

  const std::string& where() const { return where_; }
  // The key as the file has it: read_model_json() gives those of params.json other names.
  std::string shown(std::string_view key) const;
  // "key = value": `what` of an error.
  Error refuse(ErrorCode code, std::string_view key, const Json& value,
               std::string_view expected) const;

 private:
  std::vector<const Json*> sections_;
  std::string where_;
};

// What models call one thing, in the order to try.
inline const ConfigSection::Keys num_experts_keys = {"num_local_experts", "num_experts",
                                                     "n_routed_experts", "moe_num_experts"};
inline const ConfigSection::Keys top_k_keys = {
    "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk",
    "moe_top_k",           "experts_per_token",     "moe_k"};
inline const ConfigSection::Keys group_keys = {"n_group", "num_expert_group"};
inline const ConfigSection::Keys score_keys = {"scoring_func",
                                               "score_function",
                                               "score_func",
                                               "moe_router_activation",
                                               "moe_router_activation_func",
                                               "expert_selection_fn"};
inline const ConfigSection::Keys renormalize_keys = {"norm_topk_prob", "route_norm",
                                                     "moe_renormalize"};
inline const ConfigSection::Keys scaling_keys = {"routed_scaling_factor", "route_scale",
                                                 "moe_router_topk_scaling_factor"};

}  // namespace fewbit
