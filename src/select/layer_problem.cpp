// SPDX-License-Identifier: Apache-2.0
#include "select/layer_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "canonical/gguf_exact.hpp"
#include "scheme/group_order.hpp"
#include "scheme/layer_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "select/gate_up_counts.hpp"
#include "select/split_plan.hpp"

namespace fewbit {
namespace {

bool similar(const MoeProblem& a, const MoeProblem& b) {
  return a.hidden_size == b.hidden_size && a.intermediate_size == b.intermediate_size &&
         a.num_experts == b.num_experts && a.gate_up == b.gate_up && a.down == b.down;
}

// Whatever backends may ask about.
bool same_question(const MoeProblem& a, const MoeProblem& b) {
  return similar(a, b) && a.top_k == b.top_k && a.activation == b.activation &&
         a.biases == b.biases && a.expert_map == b.expert_map &&
         a.two_scale_experts == b.two_scale_experts && a.two_order_experts == b.two_order_experts;
}

bool is_moe(const ModelConfig& config, std::size_t layer) {
  return layer < config.moe_layer.size() && config.moe_layer[layer];
}

bool is_of_expert(const Module* module) { return module->expert != -1; }

// Blocks of GGUF with codes and scales apart where that changes nothing.
MoeProblem as_prepared(MoeProblem problem) {
  problem.gate_up = gguf_exact_scheme(problem.gate_up).value_or(problem.gate_up);
  problem.down = gguf_exact_scheme(problem.down).value_or(problem.down);
  return problem;
}

Result<MoeProblem> problem_of(const Checkpoint& checkpoint, const Identified& identified,
                              const ModelConfig& config, int layer, DType activation_dtype) {
  FEWBIT_TRY(const MoeWeights weights, gather_moe(checkpoint, identified, layer));
  FEWBIT_TRY(MoeProblem problem,
             make_problem(weights, config, activation_dtype, config.max_positions));
  problem.where = "layer " + std::to_string(layer);
  return as_prepared(std::move(problem));
}

// The problem of a layer like another one, with what its own weights tell.
Result<MoeProblem> recounted(const Checkpoint& checkpoint, const Identified& part,
                             MoeProblem problem, int layer) {
  problem.where = "layer " + std::to_string(layer);
  const Scheme& scheme = problem.gate_up;
  const bool globals = scheme.scale && scheme.scale->has_global;
  const bool orders = scheme.act_order == ActOrder::group;
  if (!globals && !orders) return problem;
  FEWBIT_TRY(const LayerExperts experts, LayerExperts::find(part, layer));
  if (globals) {
    FEWBIT_TRY(const auto scales, two_scale_experts(checkpoint, experts));
    problem.two_scale_experts = std::ssize(scales);
  }
  if (orders) {
    FEWBIT_TRY(const auto two, two_order_experts(checkpoint, experts));
    problem.two_order_experts = std::ssize(two);
  }
  return problem;
}

// What tells layers apart before anything is read of them: names below the layer, schemes, sizes.
std::string kind_of(const std::vector<const Module*>& modules) {
  std::string kind;
  for (const Module* module : modules) {
    kind += module->name.substr(std::min(layer_path(module->name).size(), module->name.size()));
    kind += " " + scheme_text(module->scheme) + " " + module->unreadable;
    for (const std::int64_t size : {module->n, module->k, module->experts}) {
      kind += " " + std::to_string(size);
    }
    for (const Module::Part& part : module->parts) kind += " " + part.suffix;
    kind += "\n";
  }
  return kind;
}

}  // namespace

Result<ModelConfig> layer_config(const Checkpoint& checkpoint, const Identified& identified) {
  if (checkpoint.gguf_metadata() != nullptr) return read_layer_config(checkpoint, identified);
  Result<ModelConfig> config = read_model_config(checkpoint);
  // What only the whole model needs is no matter here.
  if (config) return config;
  return read_layer_config(checkpoint, identified);
}

Result<ModelConfig> prepare_config(const Checkpoint& checkpoint, const Identified& identified,
                                   Engine engine) {
  if (checkpoint.gguf_metadata() != nullptr) return read_layer_config(checkpoint, identified);
  Result<ModelConfig> config = read_model_config(checkpoint);
  const bool runs_here = engine == Engine::fewbit;
  if (config || runs_here || config.error().code != ErrorCode::unsupported) return config;
  return read_layer_config(checkpoint, identified);
}

Result<LayerDecision> decide_layer_of(const Checkpoint& checkpoint, const Identified& identified,
                                      const MoeProblem& whole, const Parallel& parallel,
                                      const DeviceInfo& device, const SelectOptions& options) {
  FEWBIT_TRY(LayerDecision out, decide_layer(whole, parallel, device, options));
  const auto known = prepare_config(checkpoint, identified, options.engine);
  if (known) return out;
  out.of_model = known.error().what;
  for (Candidate& candidate : out.selection.candidates) candidate.unprepared = out.of_model;
  return out;
}

Result<MoeProblem> moe_layer_problem(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, int layer, DType activation_dtype) {
  if (layer < 0 || !is_moe(config, static_cast<std::size_t>(layer))) {
    return Error{ErrorCode::invalid_argument,
                 "layer " + std::to_string(layer) + " has no routed experts; the model has " +
                     std::to_string(config.num_layers) +
                     " layers: " + checkpoint.directory().string(),
                 "--layer"};
  }
  return problem_of(checkpoint, identified, config, layer, activation_dtype);
}

MoeLayers moe_layer_problems(const Checkpoint& checkpoint, const Identified& identified,
                             const ModelConfig& config, DType activation_dtype) {
  std::map<int, std::vector<const Module*>> layers;
  for (const Module& module : identified.modules) layers[module.layer].push_back(&module);
  MoeLayers out;
  std::map<std::string, MoeProblem> known;  // by kind: all experts of one layer of each are read
  // Each asked with its own modules only, so that many layers take no longer than their sum.
  for (const auto& [layer, modules] : layers) {
    if (layer < 0 || std::ranges::none_of(modules, is_of_expert)) continue;
    Identified part;
    for (const Module* module : modules) part.modules.push_back(*module);
    const std::string kind = kind_of(modules);
    if (const auto same = known.find(kind); same != known.end()) {
      out.emplace(layer, recounted(checkpoint, part, same->second, layer));
      continue;
    }
    // As far as it was identified by its headers only.
    read_group_orders(checkpoint, part.modules);
    auto problem = problem_of(checkpoint, part, config, layer, activation_dtype);
    if (problem) known.emplace(kind, *problem);
    out.emplace(layer, std::move(problem));
  }
  // The rest of a part's layers is elsewhere.
  const int known_layers =
      is_part_of_model(checkpoint) ? 0 : static_cast<int>(config.moe_layer.size());
  for (int i = 0; i < known_layers; ++i) {
    if (!is_moe(config, static_cast<std::size_t>(i)) || out.contains(i)) continue;
    out.emplace(i, problem_of(checkpoint, {}, config, i, activation_dtype));
  }
  return out;
}

std::vector<LayerGroup> group_layers(const MoeLayers& layers) {
  std::vector<LayerGroup> groups;
  for (const auto& each : layers) {
    if (!each.second) continue;
    const MoeProblem& problem = *each.second;
    const auto alike = [&](const LayerGroup& g) { return same_question(g.problem, problem); };
    const auto group = std::ranges::find_if(groups, alike);
    if (group != groups.end()) {
      group->layers.push_back(each.first);
    } else {
      groups.push_back({.layers = {each.first}, .problem = problem});
    }
  }
  return groups;
}

std::string layers_text(const std::vector<int>& layers) { return ranks_text(layers); }

Result<LayerProblem> first_moe_layer(const Checkpoint& checkpoint, const MoeLayers& layers,
                                     const ModelConfig& config) {
  LayerProblem out;
  const bool part = is_part_of_model(checkpoint);
  std::optional<Error> cut;  // of a layer that goes on in another shard
  for (const auto& [layer, made] : layers) {
    if (!is_moe(config, static_cast<std::size_t>(layer))) continue;
    if (!made && part) {
      if (!cut) cut = made.error();
      continue;
    }
    FEWBIT_TRY(const MoeProblem problem, made);
    if (out.moe_layers++ == 0) {
      out.layer = layer;
      out.problem = problem;
      out.similar_layers = 1;
    } else if (similar(out.problem, problem)) {
      ++out.similar_layers;
    }
  }
  if (out.moe_layers == 0 && cut) return *cut;
  if (out.moe_layers == 0 && part && config.num_experts > 1) {
    return Error{ErrorCode::unsupported,
                 fmt::format("this part of the model holds none of its routed experts, {} a layer",
                             config.num_experts),
                 checkpoint.directory().string()};
  }
  if (out.moe_layers == 0) {
    return Error{ErrorCode::unsupported,
                 config.num_experts > 1 ? "no tensor is known as an expert's, the config states " +
                                              std::to_string(config.num_experts) + " experts"
                                        : "the model has no MoE layer",
                 checkpoint.directory().string()};
  }
  return out;
}

bool plain_would_run(const MoeProblem& problem, const DeviceInfo& device) {
  if (device.kind != DeviceKind::cpu || !problem.gate_up.quantized()) return false;
  MoeProblem plain = problem;
  plain.gate_up = plain_scheme(DType::bf16);
  plain.down = plain_scheme(DType::bf16);
  return select_backend(plain, device).has_value();
}

}  // namespace fewbit
