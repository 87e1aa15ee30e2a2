// SPDX-License-Identifier: Apache-2.0
// Named MoE layers as text: problems without a checkpoint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fewbit/selection.hpp"

namespace fewbit {

// "nvfp4", "gptq-int4-g128-actorder" … as the head of tests/problems/models.txt tells. Error
// invalid_argument: the word that means nothing.
Result<Scheme> scheme_from_name(std::string_view name);

struct NamedProblem {
  std::string name;  // "Mixtral-8x7B/gptq-int4-g128"
  MoeProblem problem;
};
// One problem for each scheme of each line. Errors corrupt: line and what is wrong with it.
Result<std::vector<NamedProblem>> parse_problems(std::string_view text, const std::string& where);

// "Mixtral-8x7B/awq-int4-g128", or "Mixtral-8x7B" with its first scheme. Error invalid_argument
// lists the known models, or the schemes of the model.
Result<MoeProblem> find_problem(const std::vector<NamedProblem>& problems, std::string_view name);

}  // namespace fewbit
