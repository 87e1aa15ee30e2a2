// SPDX-License-Identifier: Apache-2.0
#include "scheme/quark_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/quote.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

// Of a list of steps, the part of the codes, which stands first.
QuarkWeight read_weight(const Json* config, std::string where) {
  QuarkWeight out;
  out.where = std::move(where);
  const Json* weight = config != nullptr ? config->find("weight") : nullptr;
  if (weight != nullptr && weight->as_array() != nullptr && !weight->as_array()->empty()) {
    weight = &weight->as_array()->front();
  }
  out.plain = config != nullptr && (weight == nullptr || weight->is_null());
  if (weight == nullptr) return out;
  out.dtype = word_at(*weight, "dtype");
  out.sharing = word_at(*weight, "qscheme");
  if (const Json* size = weight->find("group_size")) out.group_size = size->as_int64();
  return out;
}

enum class Class { same, other, unknown };

// Whether a class of layer_type_quant_config ("nn.Linear") is that of the module.
Class compare_class(std::string_view name, const Module& module) {
  const bool table = module.role == Role::embedding;
  if (name.find("Linear") != std::string_view::npos && module.experts == 0) {
    return table ? Class::other : Class::same;
  }
  if (name.find("Embedding") != std::string_view::npos) return table ? Class::same : Class::other;
  constexpr std::string_view others[] = {"Conv", "Norm", "Linear"};
  const bool other = std::any_of(std::begin(others), std::end(others), [&](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
  return other || module.expert == -1 ? Class::other : Class::unknown;
}

}  // namespace

QuarkConfig::QuarkConfig(const Declaration& declaration)
    : block_(declaration.block),
      where_(declaration.where),
      rules_(rule_dialect(Producer::quark), rule_entries(declaration), declaration.budget) {}

std::optional<QuarkSettings> QuarkConfig::settings_of(const Module& module) const {
  using Kind = ModuleRules::Verdict::Kind;
  if (const Json* rules = block_->find("layer_quant_config"); !rules_.entries().empty()) {
    const ModuleRules::Verdict verdict = rules_.judge(module.name);
    if (verdict.kind == Kind::partly) return std::nullopt;
    if (verdict.kind == Kind::whole) {
      const std::string& text = verdict.entry->text;
      return QuarkSettings{rules->find(text),
                           fmt::format("{} layer_quant_config {}", where_, quote(text))};
    }
  }
  const Json* classes = block_->find("layer_type_quant_config");
  if (classes != nullptr && classes->as_object() != nullptr) {
    for (const auto& [name, config] : *classes->as_object()) {
      const Class is = compare_class(name, module);
      if (is == Class::unknown) return std::nullopt;
      if (is == Class::other) continue;
      return QuarkSettings{&config,
                           fmt::format("{} layer_type_quant_config {}", where_, quote(name))};
    }
  }
  return QuarkSettings{block_->find("global_quant_config"), where_ + " global_quant_config"};
}

std::optional<QuarkWeight> QuarkConfig::weight_of(const Module& module) const {
  auto settings = settings_of(module);
  if (!settings) return std::nullopt;
  return read_weight(settings->config, std::move(settings->where));
}

std::optional<QuarkConfig> read_quark_config(const Declared& declared) {
  const Declaration* first = declared.first();
  if (first == nullptr || first->producer != Producer::quark || !first->block->is_object()) {
    return std::nullopt;
  }
  return QuarkConfig(*first);
}

}  // namespace fewbit
