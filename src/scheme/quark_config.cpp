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

// Of a list of steps, the one that the stored codes are: in whichever order they stand, those of 4
// bits, for FP8 beside them is the type of their scales or of what they were made of.
const Json* step_of_codes(const Json* weight, bool& of_fp8) {
  const Json::Array* steps = weight != nullptr ? weight->as_array() : nullptr;
  if (steps == nullptr || steps->empty()) return weight;
  const auto is_int4 = [](const Json& step) { return word_at(step, "dtype").ends_with("int4"); };
  const auto codes = std::find_if(steps->begin(), steps->end(), is_int4);
  if (codes == steps->end()) return &steps->front();
  of_fp8 = std::any_of(steps->begin(), steps->end(),
                       [](const Json& step) { return word_at(step, "dtype").starts_with("fp8"); });
  return &*codes;
}

QuarkWeight read_weight(const Json* config, std::string where) {
  QuarkWeight out;
  out.where = std::move(where);
  const Json* weight =
      step_of_codes(config != nullptr ? config->find("weight") : nullptr, out.of_fp8);
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
