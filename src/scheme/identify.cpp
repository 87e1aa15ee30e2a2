// SPDX-License-Identifier: Apache-2.0
// Groups tensors into modules and asks the readers, in order, what they are.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "checkpoint/gguf_metadata.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/group_order.hpp"
#include "scheme/identify_depth.hpp"
#include "scheme/model_hints.hpp"
#include "scheme/model_json.hpp"
#include "scheme/module_rules.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/named_methods.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

std::vector<Draft> group_tensors(std::span<const TensorInfo> tensors) {
  std::vector<Draft> drafts;
  std::unordered_map<std::string, std::size_t> by_name;
  for (const TensorInfo& info : tensors) {
    TensorName name = split_tensor_name(info.name);
    const auto [at, is_new] = by_name.try_emplace(name.module, drafts.size());
    if (is_new) {
      Draft& draft = drafts.emplace_back();
      const ModuleRole role = find_role(name.module);
      draft.module.name = std::move(name.module);
      draft.module.role = role.role;
      draft.module.layer = role.layer;
      draft.module.expert = role.expert;
    }
    Draft& draft = drafts[at->second];
    draft.module.parts.push_back({std::move(name.suffix), info.name});
    draft.tensors.push_back(&info);
  }
  std::sort(drafts.begin(), drafts.end(),
            [](const Draft& a, const Draft& b) { return a.module.name < b.module.name; });
  return drafts;
}

void take_hints(ModelHints hints, Inventory& inventory) {
  inventory.model_type = std::move(hints.model_type);
  inventory.hidden_size = hints.hidden_size;
  inventory.num_layers = hints.num_layers;
}

void refuse_rest(Inventory& inventory) {
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed) continue;
    Scheme scheme;
    scheme.producer = Producer::unknown;
    scheme.weight = draft.tensors.front()->dtype;
    draft.claim(scheme);
    const bool scale =
        std::any_of(draft.module.parts.begin(), draft.module.parts.end(),
                    [](const auto& part) { return is_quantization_suffix(part.suffix); });
    draft.module.unreadable = has_weight(draft.module) || !scale
                                  ? "quantized in an unknown way: " + draft.module.evidence
                                  : std::string(leftover_scale);
  }
}

// Codes without a row or a column are no matrix, whoever wrote them.
void refuse_empty(Inventory& inventory) {
  for (Draft& draft : inventory.drafts) {
    if (!draft.module.scheme.quantized() || !draft.module.unreadable.empty()) continue;
    for (std::size_t i = 0; i < draft.tensors.size(); ++i) {
      const TensorInfo& info = *draft.tensors[i];
      const bool empty = std::find(info.shape.begin(), info.shape.end(), 0) != info.shape.end();
      if (!empty || !is_weight_suffix(draft.module.parts[i].suffix)) continue;
      draft.module.unreadable =
          fmt::format("codes of shape {} hold no matrix", shape_text(info.shape));
    }
  }
}

// The producer of most quantized modules; what the config says only where no tensor tells.
void decide_producer(const Inventory& inventory, Identified& out) {
  std::map<Producer, std::int64_t> counts;
  std::map<Producer, const Module*> examples;
  for (const Draft& draft : inventory.drafts) {
    const Producer producer = draft.module.scheme.producer;
    if (producer == Producer::unquantized) continue;
    ++counts[producer];
    examples.try_emplace(producer, &draft.module);
  }
  const Declaration* declared = inventory.declared.first();
  const std::string says =
      declared == nullptr
          ? "no quantization config"
          : fmt::format("{} says {}", declared->where,
                        declared->method.empty() ? "no quant_method" : quote(declared->method));
  std::int64_t most = 0;
  for (const auto& [producer, count] : counts) {
    // Unexplained modules name the checkpoint only when nothing else does.
    const std::int64_t weight = producer == Producer::unknown ? 1 : count + 1;
    if (weight <= most) continue;
    most = weight;
    out.producer = producer;
  }
  if (most == 0) {
    out.producer_evidence = fmt::format("{} modules, all plain; {}", inventory.drafts.size(), says);
    return;
  }
  const Module& example = *examples[out.producer];
  out.producer_evidence =
      fmt::format("{} of {} modules, as {}: {}; {}", counts[out.producer], inventory.drafts.size(),
                  example.name, example.evidence, says);
}

// A model's config that says nothing of codes makes other loaders take them for weights; a shard
// without a config may be any part of a release, and who runs gpt-oss's original one knows.
bool is_model_config(const Inventory& inventory) {
  const auto config = read_model_json(*inventory.checkpoint);
  if (config && config->root != nullptr && is_original_gpt_oss(*config->root)) return false;
  return inventory.hidden_size.has_value() && inventory.num_layers.has_value();
}

void compare_with_config(const Inventory& inventory, Identified& out) {
  const Declaration* declared = inventory.declared.first();
  if (declared == nullptr) {
    // A GGUF file says everything itself.
    if (out.producer != Producer::unquantized && !inventory.gguf) {
      out.findings.push_back(
          {is_model_config(inventory) ? Level::warning : Level::info, "config-missing",
           "config.json", "no quantization_config and no hf_quant_config.json",
           out.producer == Producer::unknown
               ? std::string("a config that names their quantizer")
               : fmt::format("a config for {} tensors", producer_name(out.producer))});
    }
    return;
  }
  // That another place says something else is a finding of its own.
  if (inventory.declared.says(out.producer)) return;
  const bool decoded = !plain_statement(*declared).empty() && out.producer == Producer::unquantized;
  // DeepSeek-V4 says fp8 for all but its experts, and expert_dtype for those.
  const bool experts_apart =
      declared->file != nullptr && declared->file->find("expert_dtype") != nullptr;
  if (declared->producer == Producer::fp8 && out.producer == Producer::mxfp4 && experts_apart)
    return;
  // ModelOpt's releases of FP8 models keep the method, and say moe_quant_algo of the experts.
  if (list_producer(*declared) == out.producer) return;
  // MiniMax's say too that those are compressed-tensors'.
  const bool packed = word_at(*declared->block, "moe_quant_format").ends_with("pack-quantized");
  if (packed && out.producer == Producer::compressed_tensors) return;
  out.findings.push_back({decoded ? Level::info : Level::warning, "config-producer",
                          declared->where, fmt::format("quant_method {}", quote(declared->method)),
                          fmt::format("{}, as the tensors say", producer_name(out.producer))});
}

// Of a shard named alone, modules whose other parts may be in another one are no errors.
void report_unreadable(Identified& out, bool shard) {
  FindingGroups groups;
  for (const Module& module : out.modules) {
    if (module.unreadable.empty() || module.unreadable == leftover_scale) continue;
    const bool named =
        has_weight(module) && module.unreadable == named_producer_text(module.scheme.producer);
    const bool cut = shard && !named && lacks_parts(module);
    groups.add(
        module.role,
        {cut ? Level::info : Level::error, "module-unreadable", module.name, module.unreadable,
         cut ? "its other parts, which may be in another shard" : "a scheme that can be read"});
  }
  for (Finding& finding : std::move(groups).take()) out.findings.push_back(std::move(finding));
}

// What a producer asked of the activations holds for all its modules of one weight type: experts
// that calibration never reached lack their input_scale.
void spread_activation(std::vector<Draft>& drafts) {
  std::map<std::pair<Producer, DType>, DType> asked;
  for (const Draft& draft : drafts) {
    const Scheme& scheme = draft.module.scheme;
    if (scheme.activation) asked.try_emplace({scheme.producer, scheme.weight}, *scheme.activation);
  }
  for (Draft& draft : drafts) {
    const auto found = asked.find({draft.module.scheme.producer, draft.module.scheme.weight});
    if (found != asked.end()) draft.module.scheme.activation = found->second;
  }
}

void read_orders(std::vector<Draft>& drafts, const Checkpoint& checkpoint) {
  std::vector<Module*> modules;
  for (Draft& draft : drafts) modules.push_back(&draft.module);
  read_group_orders(checkpoint, modules);
}

}  // namespace

Result<Identified> identify(const Checkpoint& checkpoint, Depth depth) {
  Inventory inventory;
  inventory.checkpoint = &checkpoint;
  ModelJson config;
  if (const GgufMetadata* gguf = checkpoint.gguf_metadata()) {
    // A config.json beside it is that of the model it was made from.
    inventory.gguf = true;
    take_hints(read_model_hints(*gguf), inventory);
  } else {
    FEWBIT_TRY(inventory.declared, read_declared(checkpoint));
    FEWBIT_TRY(config, read_model_json(checkpoint));
    if (config.root != nullptr) take_hints(read_model_hints(*config.root), inventory);
  }
  inventory.drafts = group_tensors(checkpoint.tensors());
  for (const Reader& reader : readers()) reader.claim(inventory);
  refuse_rest(inventory);
  refuse_empty(inventory);
  refuse_companions(inventory);
  if (depth != Depth::headers) read_orders(inventory.drafts, checkpoint);
  for (const Reader& reader : readers()) {
    if (reader.check != nullptr) reader.check(inventory);
  }
  check_group_orders(inventory, depth);
  check_declared(inventory);
  check_both_dialects(inventory);
  check_config_values(inventory);
  check_config_hints(inventory, config);
  check_unread_files(inventory);
  check_module_rules(inventory);
  check_static_activations(inventory);
  spread_activation(inventory.drafts);

  Identified out;
  decide_producer(inventory, out);
  out.findings = std::move(inventory.findings);
  compare_with_config(inventory, out);
  out.modules.reserve(inventory.drafts.size());
  for (Draft& draft : inventory.drafts) out.modules.push_back(std::move(draft.module));
  report_unreadable(out, is_shard(checkpoint));
  soften_findings_of_a_shard(checkpoint, out.findings);
  return out;
}

Result<Identified> identify(const Checkpoint& checkpoint) {
  return identify(checkpoint, Depth::scales);
}

std::string_view Module::part(std::string_view suffix) const {
  for (const Part& one : parts) {
    if (one.suffix == suffix) return one.tensor;
  }
  return {};
}

const Module* Identified::find(std::string_view name) const {
  const auto at = std::lower_bound(
      modules.begin(), modules.end(), name,
      [](const Module& module, std::string_view wanted) { return module.name < wanted; });
  return at != modules.end() && at->name == name ? &*at : nullptr;
}

const Module* Identified::find(int layer, Role role, int expert) const {
  for (const Module& module : modules) {
    if (module.layer == layer && module.role == role && module.expert == expert) return &module;
  }
  return nullptr;
}

}  // namespace fewbit
