// SPDX-License-Identifier: Apache-2.0
// AutoRound's block, for its formats with integer codes.
#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/integer_config.hpp"

namespace fewbit {
namespace {

// Its GPTQ-like formats differ in their zero points: stored one too small, or as they are.
constexpr std::pair<std::string_view, Packing> formats[] = {
    {"auto_round:auto_gptq", Packing::words_k_minus},
    {"auto_round:gptq", Packing::words_k_minus},
    {"auto_gptq", Packing::words_k_minus},
    {"auto_round", Packing::words_k},
    {"auto_round:gptqmodel", Packing::words_k},
    {"auto_round:auto_awq", Packing::words_n},
    {"auto_round:awq", Packing::words_n},
};

// Of the wrong kind: as it stands there, for it is no other place's name either.
std::string read_data_type(const ConfigSection& section, std::vector<Error>& problems) {
  const ConfigSection::Entry entry = section.find({"data_type"});
  if (!entry) return "";
  if (const std::string* name = entry.value->as_string()) return lower_ascii(*name);
  problems.push_back(section.refuse(ErrorCode::corrupt, entry.key, *entry.value, "a string"));
  return value_text(*entry.value);
}

IntegerRule read_rule(const std::string& name, const Json& scheme, IntegerConfig& config) {
  IntegerRule rule;
  rule.text = name;
  const ConfigSection values(scheme, config.where + ".extra_config " + quote(name));
  read_bits_and_groups(values, {"bits"}, {"group_size"}, rule.spec, config.problems);
  rule.spec.symmetric = value_or_problem(values.boolean({"sym"}), config.problems);
  rule.spec.data_type = read_data_type(values, config.problems);
  rule.excludes = rule.spec.bits.value_or(0) >= 16;
  return rule;
}

// Names of modules, or regular expressions, with what differs from the scheme of all.
void read_rules(const ConfigSection& section, IntegerConfig& config) {
  const ConfigSection::Entry entry = section.find({"extra_config"});
  if (!entry) return;
  const Json::Object* layers = entry.value->as_object();
  if (layers == nullptr) {
    config.problems.push_back(
        section.refuse(ErrorCode::corrupt, "extra_config", *entry.value, "an object of layers"));
    return;
  }
  for (const auto& [name, scheme] : *layers) {
    IntegerRule rule = read_rule(name, scheme, config);
    const std::string where = config.where + ".extra_config " + quote(name);
    if (name.find_first_of("*+?^$()[]{}|\\") == std::string::npos) {
      config.rules.add_name(std::move(rule));
      continue;
    }
    const auto added =
        config.rules.add_pattern(std::move(rule), name, IntegerRules::Anchor::none, where);
    if (!added) config.problems.push_back(added.error());
  }
}

}  // namespace

IntegerConfig read_auto_round_config(const Declaration& declaration) {
  IntegerConfig config;
  config.producer = Producer::auto_round;
  config.where = declaration.where;
  const ConfigSection section(*declaration.block, declaration.where);
  read_bits_and_groups(section, {"bits"}, {"group_size"}, config.base, config.problems);
  config.base.symmetric = value_or_problem(section.boolean({"sym"}), config.problems);
  config.base.act_order = false;
  config.base.data_type = read_data_type(section, config.problems);
  const auto format = value_or_problem(section.string({"packing_format"}), config.problems);
  config.format = lower_ascii(format.value_or(""));
  bool known = config.format.empty() || is_affine_format(config.format) ||
               config.format.find("llm_compressor") != std::string::npos;
  for (const auto& [name, packing] : formats) {
    if (config.format != name) continue;
    config.packing = packing;
    known = true;
  }
  if (!known) {
    config.problems.push_back(
        {ErrorCode::unsupported,
         "packing_format " + quote(config.format) + " is not known; the tensors decide",
         config.where});
  }
  config.rules.share(declaration.budget);
  read_rules(section, config);
  config.blocks = names_in(
      section.find({"block_name_to_quantize", "to_quant_block_names", "quant_block_list"}).value);
  return config;
}

}  // namespace fewbit
