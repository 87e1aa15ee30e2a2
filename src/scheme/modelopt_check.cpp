// SPDX-License-Identifier: Apache-2.0
// Where a ModelOpt config and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/finding_groups.hpp"
#include "scheme/modelopt_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

void check_module(const Inventory& inventory, const ModeloptConfig& config, const Module& module,
                  FindingGroups& groups) {
  const bool quantized = module.scheme.producer == Producer::modelopt;
  // Token-prediction layers behind the last one are rarely listed.
  const bool extra_layer = inventory.num_layers && module.layer >= *inventory.num_layers;
  const bool expected = modelopt_expects(config, module.name);
  if (quantized && !expected) {
    groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                             "quantized tensors: " + module.evidence,
                             config.where + " does not expect it to be quantized"});
  }
  if (!module.scheme.quantized() && expected && !extra_layer && is_projection(module.role)) {
    // Routers are never quantized on purpose, and exports forget to list them.
    const Level level = module.role == Role::router ? Level::info : Level::warning;
    groups.add(module.role,
               {level, "config-expects-quantized", module.name, "plain tensors: " + module.evidence,
                config.where + " says " + config.algorithm + " and does not exclude it"});
  }
}

void check_group_size(Inventory& inventory, const ModeloptConfig& config) {
  if (config.other_group_size.empty() || config.algorithm == "MIXED_PRECISION") return;
  for (const Draft& draft : inventory.drafts) {
    const Scheme& scheme = draft.module.scheme;
    if (scheme.producer != Producer::modelopt || scheme.weight != DType::f4_e2m1 || !scheme.scale) {
      continue;
    }
    inventory.findings.push_back({Level::warning, "config-group-size", config.where,
                                  "group_size " + config.other_group_size,
                                  fmt::format("{}, as the scales of {} say",
                                              scheme.scale->granularity.cols, draft.module.name)});
    return;
  }
}

}  // namespace

void check_modelopt(Inventory& inventory) {
  std::vector<ModeloptConfig> configs;
  for (const Declaration& declaration : inventory.declared.all) {
    if (auto config = read_modelopt_config(declaration)) configs.push_back(*std::move(config));
  }
  if (configs.empty()) return;
  const ModeloptConfig& config = configs.front();
  if (configs.size() > 1 && !(configs[0] == configs[1])) {
    inventory.findings.push_back(
        {Level::warning, "config-places-differ", configs[1].where,
         fmt::format("quant_algo {}, {} excluded entries", configs[1].algorithm,
                     configs[1].exclude.size()),
         fmt::format("as in {}: quant_algo {}, {} excluded entries", config.where, config.algorithm,
                     config.exclude.size())});
  }
  FindingGroups groups;
  for (const ModeloptConfig& one : configs) check_group_size(inventory, one);
  for (const Draft& draft : inventory.drafts) {
    check_module(inventory, config, draft.module, groups);
    const bool nvfp4 = draft.module.scheme == nvfp4_scheme(Producer::modelopt) ||
                       draft.module.scheme.weight == DType::f4_e2m1;
    const bool says_other = !config.algorithm.empty() && !is_nvfp4_algorithm(config.algorithm) &&
                            config.algorithm != "MIXED_PRECISION";
    if (draft.module.scheme.producer == Producer::modelopt && nvfp4 && says_other) {
      groups.add(draft.module.role, {Level::warning, "config-algorithm", draft.module.name,
                                     "NVFP4 tensors: " + draft.module.evidence,
                                     config.where + " says quant_algo " + config.algorithm});
    }
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
