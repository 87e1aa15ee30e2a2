// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

bool is_last_part(std::string_view module, std::string_view name) {
  return module == name ||
         (module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

bool any_is_last_part(const std::vector<std::string>& names, std::string_view module) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return is_last_part(module, name); });
}

// By the ends of names: the module's own, that of a matrix which it is a part of, or those of all
// its parts.
Exclusion listed_in_block(const std::vector<std::string>& names, std::string_view module) {
  const std::string_view last = last_component(module);
  std::vector<std::string> whole = fused_names_of(last);
  whole.emplace_back(last);
  const auto listed = [&](const std::string& component) {
    return any_is_last_part(names, with_last_component(module, component));
  };
  if (std::any_of(whole.begin(), whole.end(), listed)) return {};
  const std::vector<std::string> parts = fused_parts(last);
  const auto count = std::count_if(parts.begin(), parts.end(), listed);
  if (count > 0 && count == std::ssize(parts)) return {};
  return {"modules_in_block_to_quantize without it", count > 0};
}

// Lists that are searched for every module.
constexpr std::size_t most_names = 4096;

void add_split(const std::string& text, std::vector<std::string>& out) {
  std::size_t begin = 0;
  while (begin <= text.size() && out.size() < most_names) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, comma - begin);
    std::erase(name, ' ');
    if (!name.empty()) out.push_back(std::move(name));
    begin = comma + 1;
  }
}

}  // namespace

std::vector<std::string> names_in(const Json* value) {
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (const std::string* text = value->as_string()) add_split(*text, out);
  if (value->as_array() == nullptr) return out;
  for (const Json& item : *value->as_array()) {
    if (const std::string* text = item.as_string()) add_split(*text, out);
    if (item.as_array() == nullptr) continue;
    for (const Json& inner : *item.as_array()) {
      if (const std::string* text = inner.as_string()) add_split(*text, out);
    }
  }
  return out;
}

void read_bits_and_groups(const ConfigSection& section, ConfigSection::Keys bits,
                          ConfigSection::Keys group_size, IntegerSpec& spec,
                          std::vector<Error>& problems) {
  spec.bits = value_or_problem(section.integer(bits, 1, 32), problems);
  read_group_size(section, group_size, spec);
}

void read_excluded(const Declaration& declaration, IntegerConfig& config) {
  std::vector<PatternEntry> excluded = ignore_entries(declaration);
  if (excluded.empty()) return;
  config.excluded.emplace(dialect_of(config.producer), std::move(excluded), declaration.budget);
}

ConfigName read_name(const ConfigSection& section, ConfigSection::Keys keys) {
  const ConfigSection::Entry entry = section.find(keys);
  if (!entry) return {};
  if (const std::string* name = word_of(entry.value)) return {lower_ascii(*name), {}};
  return {
      {},
      fmt::format("{} {} of {} is no name", entry.key, value_text(*entry.value), section.where())};
}

void read_group_size(const ConfigSection& section, ConfigSection::Keys group_size,
                     IntegerSpec& spec) {
  const ConfigSection::Entry size = section.find(group_size);
  if (!size) return;
  spec.group_size = size.value->as_int64();
  const std::int64_t value = spec.group_size.value_or(0);
  if (value == -1) {
    spec.group_size = 0;
  } else if (value < 1 || value > largest_group_size) {
    spec.group_size.reset();
  }
}

std::optional<IntegerConfig> read_integer_config(const Declaration& declaration) {
  switch (declaration.producer) {
    case Producer::gptq:
      return read_gptq_config(declaration);
    case Producer::awq:
      return read_awq_config(declaration);
    case Producer::auto_round:
      return read_auto_round_config(declaration);
    default:
      return std::nullopt;
  }
}

std::optional<IntegerConfig> first_integer_config(const Declared& declared) {
  for (const Declaration& declaration : declared.all) {
    if (auto config = read_integer_config(declaration)) return config;
  }
  return std::nullopt;
}

IntegerSpec spec_of(const IntegerConfig& config, const std::string& module) {
  const IntegerRule* rule = config.rules.find(module);
  return rule != nullptr && !rule->excludes ? config.base.with(rule->spec) : config.base;
}

bool names_module(const IntegerConfig& config, const std::string& module) {
  const IntegerRule* rule = config.rules.find(module);
  if (rule != nullptr && !rule->excludes) return true;
  return any_is_last_part(config.modules_in_block, module);
}

Exclusion exclusion_of(const IntegerConfig& config, const Module& module) {
  // GPTQ's own lists hold empty rules, which change nothing, and its lm_head outranks them.
  const bool gptq = config.producer == Producer::gptq;
  const bool no_head = gptq && module.role == Role::head && config.lm_head == false;
  if (config.rules.excludes_partly(module.name)) return {"", true};
  if (const IntegerRule* rule = config.rules.find(module.name)) {
    if (rule->excludes) return {"rule " + quote(rule->text)};
    if (!no_head && !(gptq && rule->spec.empty())) return {};
  }
  if (config.excluded) {
    const ModuleRules::Verdict verdict = config.excluded->judge(module);
    if (verdict.kind == ModuleRules::Verdict::Kind::partly) return {"", true};
    if (verdict.entry != nullptr) return {"entry " + quote(verdict.entry->text)};
  }
  // Output heads are quantized only where the config says so.
  if (module.role == Role::head && !config.lm_head.value_or(false)) return {"no lm_head"};
  if (config.blocks && module.role != Role::head &&
      config.blocks->judge(module.name).entry == nullptr) {
    return {"block_name_to_quantize without it"};
  }
  if (config.modules_in_block.empty() || module.role == Role::head) return {};
  return listed_in_block(config.modules_in_block, module.name);
}

}  // namespace fewbit
