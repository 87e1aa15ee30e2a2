// SPDX-License-Identifier: Apache-2.0
#include "scheme/nibble_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

// Names of e2m1, and how AutoRound's ways of finding scales are appended to them.
constexpr std::string_view float_names[] = {"mx_fp",  "mx_fp4", "mx_fp4e2m1", "mxfp4", "nv_fp",
                                            "nv_fp4", "nvfp4",  "nvfp4_v2",   "fp4_v2"};
constexpr std::string_view suffixes[] = {"", "_rceil", "_with_static_gs", "_with_global_scale"};

// All names of types in a block, but for modules that stay at 16 bits.
void add_names(const Json& block, std::set<std::string>& names) {
  const auto add = [&](const Json& place) {
    const Json* type = place.is_object() ? place.find("data_type") : nullptr;
    const Json* bits = place.is_object() ? place.find("bits") : nullptr;
    if (word_of(type) == nullptr) return;
    if (bits != nullptr && bits->as_int64().value_or(0) >= 16) return;
    names.insert(lower_ascii(*type->as_string()));
  };
  add(block);
  const Json* layers = block.is_object() ? block.find("extra_config") : nullptr;
  if (layers == nullptr || layers->as_object() == nullptr) return;
  for (const auto& [name, layer] : *layers->as_object()) add(layer);
}

// Both kinds, "mx_fp4 and mx_int4"; empty where there is one.
std::string mixed_text(const std::set<std::string>& names) {
  std::string quarters;
  std::string floats;
  for (const std::string& name : names) {
    if (name.starts_with("mx_int")) quarters = name;
    if (nibble_codes(name) == NibbleCodes::floats) floats = name;
  }
  return quarters.empty() || floats.empty() ? std::string() : floats + " and " + quarters;
}

}  // namespace

NibbleCodes nibble_codes(std::string_view data_type) {
  if (data_type == "mx_int4") return NibbleCodes::quarters;
  for (const std::string_view name : float_names) {
    if (!data_type.starts_with(name)) continue;
    const std::string_view rest = data_type.substr(name.size());
    if (std::find(std::begin(suffixes), std::end(suffixes), rest) != std::end(suffixes)) {
      return NibbleCodes::floats;
    }
  }
  return NibbleCodes::untold;
}

NibbleTypes::NibbleTypes(const Declared& declared) {
  std::set<std::string> names;
  for (const Declaration& one : declared.all) {
    const bool own = one.producer == Producer::auto_round;
    if (!own && one.producer != Producer::compressed_tensors) continue;
    silent_ = false;
    // Exports to compressed-tensors may keep AutoRound's keys.
    const bool kept =
        one.block->find("data_type") != nullptr || one.block->find("extra_config") != nullptr;
    if (!own && !kept) continue;
    configs_.push_back(read_auto_round_config(one));
    if (!own) configs_.back().producer = one.producer;
    add_names(*one.block, names);
  }
  mixed_ = mixed_text(names);
}

std::pair<std::string, std::string> NibbleTypes::type_of(const std::string& module) const {
  for (const IntegerConfig& config : configs_) {
    std::string type = spec_of(config, module).data_type;
    if (!type.empty()) return {std::move(type), config.where};
  }
  return {};
}

NibbleTypes::Verdict NibbleTypes::of(const std::string& module, NibbleCodes group) const {
  Verdict out;
  out.e5m3 = silent_;
  std::string kept_where;
  for (const IntegerConfig& config : configs_) {
    const std::string type = spec_of(config, module).data_type;
    const bool second = type.find("v2") != std::string::npos;
    out.e5m3 = out.e5m3 || second || config.format.find("e5m3") != std::string::npos;
    if (type.empty()) {
      if (config.producer == Producer::auto_round && kept_where.empty()) kept_where = config.where;
      continue;
    }
    const NibbleCodes codes = nibble_codes(type);
    const bool differs = out.codes != NibbleCodes::untold && out.codes != codes;
    out.says += fmt::format("{}data_type {} by {}", out.says.empty() ? "" : ", ", quote(type),
                            config.where);
    out.codes = codes;
    if (codes == NibbleCodes::untold || differs) return {NibbleCodes::untold, out.e5m3, out.says};
  }
  if (!mixed_.empty()) return {NibbleCodes::untold, out.e5m3, "data_type " + mixed_};
  if (out.says.empty() && !kept_where.empty()) {
    return {NibbleCodes::untold, out.e5m3, "no data_type by " + kept_where};
  }
  const bool contradicted = group != NibbleCodes::untold && out.codes != group &&
                            (group == NibbleCodes::quarters || !out.says.empty());
  if (contradicted) {
    const char* const type = group == NibbleCodes::floats ? "float" : "int";
    out.says += fmt::format("{}type {} by the group of compressed-tensors",
                            out.says.empty() ? "" : ", ", type);
    return {NibbleCodes::untold, out.e5m3, out.says};
  }
  if (out.says.empty()) {
    out.codes = NibbleCodes::floats;
    out.says = "no data_type";
  }
  return out;
}

}  // namespace fewbit
