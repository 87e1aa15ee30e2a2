// SPDX-License-Identifier: Apache-2.0
#include "scheme/sglang_compat.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "scheme/module_match_regex.hpp"

namespace fewbit::sglang {
namespace {

using Strings = std::span<const std::string>;

const FusedMapping& built_in_mapping() {
  static const FusedMapping mapping = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
                                       {"gate_up_proj", {"gate_proj", "up_proj"}}};
  return mapping;
}

const std::vector<std::string>* parts_of(const FusedMapping& mapping, std::string_view name) {
  const auto found = std::find_if(mapping.begin(), mapping.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found != mapping.end() ? &found->second : nullptr;
}

// Every occurrence, not only the last component.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  while (true) {
    const std::size_t at = text.find(from);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += to;
    text.remove_prefix(at + from.size());
  }
}

bool any_match(std::string_view prefix, Strings ignored) {
  return std::any_of(ignored.begin(), ignored.end(),
                     [&](const std::string& entry) { return module_path_match(entry, prefix); });
}

bool listed(std::string_view name, Strings ignored) {
  return std::find(ignored.begin(), ignored.end(), name) != ignored.end();
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Result<bool> judge_parts(std::string_view prefix, std::string_view fused,
                         const std::vector<std::string>& parts, Strings ignored) {
  std::string skipped;
  std::string kept;
  for (const std::string& part : parts) {
    const bool skip = any_match(replace_all(prefix, fused, part), ignored);
    std::string& list = skip ? skipped : kept;
    list += (list.empty() ? "" : ", ") + part;
  }
  if (skipped.empty() && kept.empty()) {
    return Error{ErrorCode::invalid_argument, fmt::format("{} is fused of no parts", quote(fused)),
                 std::string(prefix)};
  }
  if (!skipped.empty() && !kept.empty()) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} listed and {} not, expected all parts alike", skipped, kept),
                 std::string(prefix)};
  }
  return kept.empty();
}

bool judge_single(std::string_view prefix, Strings ignored) {
  if (any_match(prefix, ignored)) return true;
  if (contains(prefix, "gate_up_proj")) {
    return listed(replace_all(prefix, "gate_up_proj", "gate_proj"), ignored) &&
           listed(replace_all(prefix, "gate_up_proj", "up_proj"), ignored);
  }
  return contains(prefix, "experts") &&
         std::any_of(ignored.begin(), ignored.end(), [&](const std::string& entry) {
           return contains(entry, "experts") && contains(entry, prefix);
         });
}

// The size of a code type with a fixed zero point; empty: (bits, sym) is no marlin type.
std::string marlin_type(std::int64_t bits, bool sym) {
  if (sym && bits == 4) return "uint4b8";
  if (sym && bits == 8) return "uint8b128";
  return "";
}

Result<void> check_bits(GptqConfig& config, std::string_view prefix) {
  if (config.method == "gptq_marlin") {
    config.quant_type = marlin_type(config.bits, config.sym);
    if (config.quant_type.empty()) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("bits {} with sym {}, expected 4 or 8 with sym true", config.bits,
                               config.sym),
                   std::string(prefix)};
    }
  }
  const bool known = config.bits == 2 || config.bits == 3 || config.bits == 4 || config.bits == 8;
  if (config.method == "gptq" && !known) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("bits {}, expected 2, 3, 4 or 8", config.bits), std::string(prefix)};
  }
  return {};
}

Result<Json> parse_rules(std::string_view dynamic) {
  FEWBIT_TRY(Json rules, Json::parse(dynamic, "dynamic"));
  if (rules.is_object()) return rules;
  return Error{ErrorCode::invalid_argument,
               fmt::format("a JSON {}, expected an object of rules", rules.kind()), "dynamic"};
}

}  // namespace

bool module_path_match(std::string_view ignored, std::string_view prefix) {
  const auto between_dots = [](std::string_view name) {
    while (name.ends_with('.')) name.remove_suffix(1);
    return fmt::format(".{}.", name);
  };
  return contains(between_dots(prefix), between_dots(ignored));
}

Result<bool> is_layer_skipped(std::string_view prefix, std::span<const std::string> ignored,
                              const FusedMapping& fused) {
  // Without a dot: find gives npos, and npos + 1 is 0.
  const std::string_view last = prefix.substr(prefix.rfind('.') + 1);
  const std::vector<std::string>* parts = parts_of(fused, last);
  if (parts == nullptr) parts = parts_of(built_in_mapping(), last);
  if (parts != nullptr) return judge_parts(prefix, last, *parts, ignored);
  return judge_single(prefix, ignored);
}

Result<Json> get_dynamic_override(const Json::Object& dynamic, std::string_view name,
                                  std::optional<std::string_view> key, Json fallback) {
  for (const auto& [rule, values] : dynamic) {
    std::string_view pattern = rule;
    const bool excludes = pattern.starts_with("-:");
    if (excludes || pattern.starts_with("+:")) pattern.remove_prefix(2);
    FEWBIT_TRY(const PythonRegex regex, PythonRegex::compile(pattern, "dynamic"));
    FEWBIT_TRY(const bool hit, regex.match(name));
    if (!hit) continue;
    if (excludes) return Json(false);
    if (!key) return values;
    const Json* value = values.find(*key);
    if (value != nullptr) return *value;
    break;
  }
  return fallback;
}

Result<std::string> get_dynamic_override(std::string_view dynamic, std::string_view name,
                                         std::optional<std::string_view> key,
                                         std::string_view fallback) {
  FEWBIT_TRY(const Json rules, parse_rules(dynamic));
  FEWBIT_TRY(Json otherwise, Json::parse(fallback, "fallback"));
  FEWBIT_TRY(const Json value,
             get_dynamic_override(*rules.as_object(), name, key, std::move(otherwise)));
  return value.dump();
}

Result<GptqConfig> override_config(const GptqConfig& config, std::string_view prefix) {
  GptqConfig out = config;
  FEWBIT_TRY(const Json parsed, parse_rules(config.dynamic));
  const Json::Object& rules = *parsed.as_object();
  FEWBIT_TRY(const Json bits, get_dynamic_override(rules, prefix, "bits", config.bits));
  FEWBIT_TRY(const Json group,
             get_dynamic_override(rules, prefix, "group_size", config.group_size));
  FEWBIT_TRY(const Json desc_act, get_dynamic_override(rules, prefix, "desc_act", config.desc_act));
  FEWBIT_TRY(const Json sym, get_dynamic_override(rules, prefix, "sym", config.sym));
  if (const auto value = bits.as_int64()) out.bits = *value;
  if (const auto value = group.as_int64()) out.group_size = *value;
  if (const auto value = desc_act.as_bool()) out.desc_act = *value;
  if (const auto value = sym.as_bool(); value && out.method == "gptq_marlin") out.sym = *value;
  if (out.bits < 1 || out.bits > 32) {
    return Error{ErrorCode::invalid_argument, fmt::format("bits {}, expected 1 to 32", out.bits),
                 std::string(prefix)};
  }
  out.pack_factor = 32 / out.bits;
  FEWBIT_TRY(check_bits(out, prefix));
  return out;
}

}  // namespace fewbit::sglang
