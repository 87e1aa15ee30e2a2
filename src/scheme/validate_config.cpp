// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "checkpoint/gguf_metadata.hpp"
#include "core/text_search.hpp"
#include "scheme/config_places.hpp"
#include "scheme/config_section.hpp"
#include "scheme/model_config.hpp"
#include "scheme/model_hints.hpp"
#include "scheme/model_json.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Sizes that the config states; empty where it doesn't.
struct Sizes {
  std::string source;  // "config.json", "params.json"
  std::optional<std::int64_t> hidden;
  std::optional<std::int64_t> expert_inner;
  std::optional<std::int64_t> experts;
  std::optional<std::int64_t> vocab;
  std::optional<std::int64_t> layers;
  std::set<std::int64_t> empty_layers;
  std::optional<std::int64_t> top_k;
  std::optional<std::int64_t> groups;  // of experts, for the choice
  std::optional<std::int64_t> top_groups;
  std::set<std::int64_t> numbers;  // all integers of the config
  std::set<std::int64_t> rows;     // those whose key tells what tables have rows for
  std::vector<std::string> wrong;  // "hidden_size Infinity"
  bool exact = false;              // of a family that fewbit runs, whose tables have no other rows
};

// 0 says that there is none of it; a list a layer is nobody's single size.
std::optional<std::int64_t> size_of(const ConfigSection& config, ConfigSection::Keys keys,
                                    Sizes& sizes) {
  const ConfigSection::Entry entry = config.find(keys);
  if (!entry || entry.value->is_array() || entry.value->is_object()) return std::nullopt;
  const auto number = entry.value->as_int64();
  if (!number || *number < 0) {
    sizes.wrong.push_back(fmt::format("{} {}", config.shown(entry.key), value_text(*entry.value)));
    return std::nullopt;
  }
  const auto value = config.integer(keys, 1, INT64_MAX);
  return value ? *value : std::nullopt;
}

// Words, codes, kinds of tokens.
bool counts_rows(std::string_view key) {
  return contains_any(key, {"vocab", "codebook", "num_embed", "num_token", "n_token"});
}

void add_number(std::string_view key, std::optional<std::int64_t> number, Sizes& sizes) {
  if (!number) return;
  sizes.numbers.insert(*number);
  if (counts_rows(key)) sizes.rows.insert(*number);
}

void add_numbers(const Json& value, Sizes& sizes) {
  for (const ConfigPlace& place : config_places(value)) {
    const Json::Object* members = place.object->as_object();
    if (members == nullptr) continue;
    for (const auto& [name, member] : *members) {
      add_number(name, member.as_int64(), sizes);
    }
  }
}

Sizes read_sizes(const ModelJson& file) {
  const ConfigSection config(*file.root, file.name);
  Sizes sizes;
  sizes.source = file.name;
  // Latent experts do not have the model's width.
  if (!config.find({"moe_latent_size"})) sizes.hidden = size_of(config, {"hidden_size"}, sizes);
  sizes.expert_inner = size_of(config, {"moe_intermediate_size"}, sizes);
  if (!config.find({"moe_intermediate_size"})) {
    sizes.expert_inner = size_of(config, {"intermediate_size"}, sizes);
  }
  sizes.experts = size_of(config, num_experts_keys, sizes);
  sizes.vocab = size_of(config, {"vocab_size"}, sizes);
  sizes.layers = size_of(config, {"num_hidden_layers"}, sizes);
  sizes.empty_layers = read_model_hints(*file.root).empty_layers;
  sizes.top_k = size_of(config, top_k_keys, sizes);
  sizes.groups = size_of(config, group_keys, sizes);
  sizes.top_groups = size_of(config, {"topk_group"}, sizes);
  add_numbers(*file.root, sizes);
  return sizes;
}

Sizes read_sizes(const GgufMetadata& metadata) {
  Sizes sizes;
  sizes.source = "the file's metadata";
  if (metadata.find_of_architecture("moe_latent_size") == nullptr) {
    sizes.hidden = gguf_size(metadata, "embedding_length");
  }
  const bool own = metadata.find_of_architecture("expert_feed_forward_length") != nullptr;
  sizes.expert_inner =
      gguf_size(metadata, own ? "expert_feed_forward_length" : "feed_forward_length");
  sizes.experts = gguf_size(metadata, "expert_count");
  sizes.vocab = gguf_size(metadata, "vocab_size");
  const ModelHints hints = read_model_hints(metadata);
  sizes.layers = hints.num_layers;
  sizes.empty_layers = hints.empty_layers;
  sizes.top_k = gguf_size(metadata, "expert_used_count");
  sizes.groups = gguf_size(metadata, "expert_group_count");
  sizes.top_groups = gguf_size(metadata, "expert_group_used_count");
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    add_number(entry.key, entry.value.as_int64(), sizes);
  }
  return sizes;
}

// Empty when the checkpoint states none.
std::optional<Sizes> stated_sizes(const Checkpoint& checkpoint) {
  if (const GgufMetadata* metadata = checkpoint.gguf_metadata()) return read_sizes(*metadata);
  const auto config = read_model_json(checkpoint);
  if (!config || config->root == nullptr) return std::nullopt;
  Sizes sizes = read_sizes(*config);
  sizes.exact = read_model_config(checkpoint).has_value();
  return sizes;
}

// One thing under several names of config.json.
void validate_names(Validation& validation) {
  if (validation.checkpoint.gguf_metadata() != nullptr) return;
  const auto file = read_model_json(validation.checkpoint);
  if (!file || file->root == nullptr) return;
  const ConfigSection config(*file->root, file->name);
  for (const ConfigSection::Keys& keys :
       {num_experts_keys, top_k_keys, group_keys, score_keys, renormalize_keys, scaling_keys}) {
    const auto agrees = config.agree(keys);
    if (agrees) continue;
    validation.groups.add(Role::router, {Level::error, "config-names-differ", file->name,
                                         agrees.error().what, "one value"});
  }
}

// What is looked up inside a text or a number is not found, as if the config did not state it.
void validate_sections(Validation& validation) {
  if (validation.checkpoint.gguf_metadata() != nullptr) return;
  const auto file = read_model_json(validation.checkpoint);
  if (!file || file->root == nullptr) return;
  for (const std::string_view key :
       {"text_config", "llm_config", "language_config", "vision_config", "audio_config",
        "rope_scaling", "rope_parameters", "moe"}) {
    const Json* value = file->root->find(key);
    if (value == nullptr || value->is_null() || value->is_object()) continue;
    // Elsewhere a flag.
    if (key == "moe" && file->name != params_file) continue;
    validation.groups.add(Role::other, {Level::warning, "config-section", file->name,
                                        fmt::format("{} is {}", key, value_text(*value)),
                                        "an object; nothing that it should state is known"});
  }
}

struct Expected {
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> k;
};

Expected expected_size(const Sizes& sizes, const Module& module) {
  const bool expert = module.expert != -1;
  switch (module.role) {
    case Role::gate_proj:
    case Role::up_proj:
      return {expert ? sizes.expert_inner : std::nullopt, sizes.hidden};
    case Role::gate_up_proj: {
      const auto inner = expert ? sizes.expert_inner : std::nullopt;
      return {inner ? std::optional(*inner * 2) : std::nullopt, sizes.hidden};
    }
    case Role::down_proj:
      return {sizes.hidden, expert ? sizes.expert_inner : std::nullopt};
    case Role::router:
      return {sizes.experts, sizes.hidden};
    case Role::embedding:
    case Role::head:
      return {sizes.vocab, sizes.hidden};
    default:
      return {};
  }
}

std::string size_text(std::optional<std::int64_t> size) {
  return size ? fmt::format("{}", *size) : "any";
}

// Tables of words have rows for padding, some a row a codebook; drafts, second towers and
// factorised embeddings have sizes of their own, which the config states under many names.
bool is_table_size(const Sizes& sizes, const Module& module) {
  constexpr std::int64_t most_padding = 1024;
  if (module.role != Role::embedding && module.role != Role::head) return false;
  if (!sizes.vocab || !sizes.hidden) return false;
  const bool transposed = module.n == *sizes.hidden && module.k == *sizes.vocab;
  const std::int64_t more = module.n - *sizes.vocab;
  const bool is_codes = module.role == Role::embedding && more % *sizes.vocab == 0;
  const bool rows = (more > 0 && (more < most_padding || is_codes)) ||
                    sizes.rows.contains(module.n) ||
                    (contains_text(module.name, "pos") && sizes.numbers.contains(module.n));
  return !transposed && rows && sizes.numbers.contains(module.k);
}

// The norms around and behind the main layers, which have the model's width.
void validate_norm(Validation& validation, const Sizes& sizes, const Module& module) {
  constexpr std::string_view ends[] = {"norm", "norm_f", "input_layernorm",
                                       "post_attention_layernorm"};
  constexpr std::string_view models[] = {"model", "model.language_model", "language_model.model",
                                         "backbone"};
  const auto parts = split_dots(module.name);
  const bool named = std::find(std::begin(ends), std::end(ends), parts.back()) != std::end(ends);
  if (!sizes.hidden || !named || module.k != 0 || module.n == *sizes.hidden) return;
  const bool main = std::any_of(std::begin(models), std::end(models), [&](std::string_view model) {
    const std::string path = fmt::format("{}.layers.{}", model, module.layer);
    return module.name == fmt::format("{}.{}", model, parts.back()) ||
           module.name == fmt::format("{}.{}", path, parts.back());
  });
  if (!main) return;
  validation.add(module, Level::error, "config-size", module.name, fmt::format("[{}]", module.n),
                 fmt::format("[{}] by {}", *sizes.hidden, sizes.source));
}

void validate_size(Validation& validation, const Sizes& sizes, const Module& module) {
  if (module.role == Role::norm) return validate_norm(validation, sizes, module);
  if (!module.unreadable.empty() || module.k == 0) return;
  if (!sizes.exact && is_table_size(sizes, module)) return;
  const Expected expected = expected_size(sizes, module);
  const bool wrong =
      (expected.n && *expected.n != module.n) || (expected.k && *expected.k != module.k);
  if (wrong) {
    validation.add(
        module, Level::error, "config-size", module.name,
        fmt::format("[{}, {}]", module.n, module.k),
        fmt::format("[{}, {}] by {}", size_text(expected.n), size_text(expected.k), sizes.source));
  }
  if (module.expert == all_experts && module.experts > 0 && sizes.experts &&
      module.experts != *sizes.experts) {
    validation.add(module, Level::error, "config-experts", module.name,
                   fmt::format("{} experts", module.experts),
                   fmt::format("{} by {}", *sizes.experts, sizes.source));
  }
}

// The choice of experts against their number; the tensors' number counts where there is one.
void validate_choice(Validation& validation, const Sizes& sizes) {
  const auto add = [&](const char* rule, std::string found, std::string expected) {
    validation.groups.add(
        Role::router, {Level::error, rule, sizes.source, std::move(found), std::move(expected)});
  };
  if (!sizes.experts) return;
  if (sizes.top_k && *sizes.top_k > *sizes.experts) {
    add("config-top-k", fmt::format("{} experts a token", *sizes.top_k),
        fmt::format("at most {}, as many as there are", *sizes.experts));
  }
  if (!sizes.groups) return;
  if (*sizes.experts % *sizes.groups != 0) {
    add("config-expert-groups", fmt::format("{} groups", *sizes.groups),
        fmt::format("a divisor of {} experts", *sizes.experts));
  }
  if (sizes.top_groups && *sizes.top_groups > *sizes.groups) {
    add("config-expert-groups", fmt::format("{} groups a token", *sizes.top_groups),
        fmt::format("at most {}", *sizes.groups));
  }
}

// Of families that fewbit runs, reading the whole config says so.
void validate_wrong_sizes(Validation& validation, const Sizes& sizes) {
  if (sizes.wrong.empty()) return;
  const auto model = read_model_config(validation.checkpoint);
  const bool read_here = model || (model.error().code != ErrorCode::unsupported &&
                                   model.error().code != ErrorCode::not_found);
  if (read_here) return;
  for (const std::string& wrong : sizes.wrong) {
    validation.groups.add(Role::other, {Level::error, "config-unreadable", sizes.source, wrong,
                                        "an integer, at least 0"});
  }
}

}  // namespace

void validate_config_sizes(Validation& validation) {
  validate_names(validation);
  validate_sections(validation);
  const auto stated = stated_sizes(validation.checkpoint);
  if (!stated) return;
  const Sizes& sizes = *stated;
  validate_wrong_sizes(validation, sizes);
  validate_choice(validation, sizes);
  std::int64_t layers = 0;
  std::map<std::string, std::pair<std::int64_t, const Module*>> experts;  // highest id + 1, by path
  for (const Module& module : validation.identified.modules) {
    validate_size(validation, sizes, module);
    layers = std::max<std::int64_t>(layers, module.layer + std::int64_t{1});
    if (module.layer < 0 || module.expert < 0) continue;
    auto& [count, example] = experts[layer_path(module.name)];
    if (module.expert >= count) example = &module;
    count = std::max<std::int64_t>(count, module.expert + std::int64_t{1});
  }
  for (const auto& [layer, found] : experts) {
    if (!sizes.experts || found.first <= *sizes.experts) continue;
    validation.add(*found.second, Level::error, "config-experts", found.second->name,
                   fmt::format("{} experts in {}", found.first, layer),
                   fmt::format("{} by {}", *sizes.experts, sizes.source));
  }
  if (layers == 0 || is_part_of_model(validation.checkpoint)) return;
  while (sizes.empty_layers.contains(layers)) ++layers;
  // More layers are token-prediction heads; fewer can't be.
  if (sizes.layers && layers < *sizes.layers) {
    validation.groups.add(Role::other,
                          {Level::error, "layers-missing", sizes.source,
                           fmt::format("tensors of layers 0 to {}", layers - 1),
                           fmt::format("{} layers by {}", *sizes.layers, sizes.source)});
  }
}

}  // namespace fewbit
