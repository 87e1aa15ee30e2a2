// SPDX-License-Identifier: Apache-2.0
// AutoRound's block, for its formats with integer codes.
#include <algorithm>
#include <iterator>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"
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
std::string read_data_type(const ConfigSection& section) {
  const ConfigSection::Entry entry = section.find({"data_type"});
  if (!entry) return "";
  if (const std::string* name = word_of(entry.value)) return lower_ascii(*name);
  return value_text(*entry.value);
}

// bits, and group_size: a number of columns, or of 8-bit floats also 0 (one scale a matrix) and
// [rows, columns].
void read_sizes(const ConfigSection& section, const IntegerSpec& base, IntegerSpec& spec,
                std::vector<Error>& problems) {
  const ConfigSection::Entry size = section.find({"group_size"});
  spec.bits = value_or_problem(section.integer({"bits"}, 1, 32), problems);
  const IntegerSpec whole = base.with(spec);
  const bool fp8 = whole.bits == 8 && whole.data_type.find("int") == std::string::npos;
  if (fp8 && size && size.value->as_int64() == 0) {
    spec.block = Granularity{0, 0};
  } else if (fp8 && size && size.value->as_array() != nullptr) {
    const Json::Array& sides = *size.value->as_array();
    const bool pair = sides.size() == 2 && sides[0].as_int64().value_or(0) > 0 &&
                      sides[1].as_int64().value_or(0) > 0;
    if (pair) spec.block = Granularity{*sides[0].as_int64(), *sides[1].as_int64()};
  } else {
    read_group_size(section, {"group_size"}, spec);
    if (size && size.value->as_int64() == 0) {
      problems.push_back(section.refuse(ErrorCode::unsupported, size.key, *size.value,
                                        "-1 (a scale a row) or a number of columns above 0: one "
                                        "scale a matrix is for 8-bit floats"));
    }
  }
}

IntegerRule read_rule(const std::string& name, const Json& scheme, IntegerConfig& config) {
  IntegerRule rule;
  rule.text = name;
  const ConfigSection values(scheme, config.where + ".extra_config " + quote(name));
  rule.spec.data_type = read_data_type(values);
  read_sizes(values, config.base, rule.spec, config.problems);
  rule.spec.symmetric = value_or_problem(values.boolean({"sym"}), config.problems);
  rule.excludes = rule.spec.bits.value_or(0) >= 16;
  return rule;
}

// Names of modules, or regular expressions, with what differs from the scheme of all.
void read_rules(const ConfigSection& section, IntegerConfig& config) {
  const ConfigSection::Entry entry = section.find({"extra_config"});
  if (!entry) return;
  const Json::Object* layers = entry.value->as_object();
  if (layers == nullptr) return;
  for (const auto& [name, scheme] : *layers) {
    IntegerRule rule = read_rule(name, scheme, config);
    const std::string where = config.where + ".extra_config " + quote(name);
    if (name.find_first_of("*+?^$()[]{}|\\") == std::string::npos) {
      config.rules.add_name(std::move(rule), where);
      continue;
    }
    const auto added = config.rules.add_pattern(std::move(rule), name, where);
    if (!added) config.problems.push_back(added.error());
  }
}

// What all of the names begin with, in whole components: "model.layers" of its blocks.
std::string common_parent(const std::vector<std::string>& names) {
  std::string parent = names.front();
  for (const std::string& name : names) {
    const auto within = [&] {
      return name == parent || (name.starts_with(parent) && name[parent.size()] == '.');
    };
    while (!parent.empty() && !within()) {
      const std::size_t dot = parent.rfind('.');
      parent.resize(dot == std::string::npos ? 0 : dot);
    }
  }
  return parent;
}

// Of a list of lists each stands for what its names have in common; those without any count as
// they are.
std::vector<std::string> block_names(const Json* value) {
  const Json::Array* items = value != nullptr ? value->as_array() : nullptr;
  if (items == nullptr) return names_in(value);
  std::vector<std::string> out;
  for (const Json& item : *items) {
    std::vector<std::string> names = names_in(&item);
    std::string parent = names.size() > 1 && item.as_array() != nullptr ? common_parent(names) : "";
    if (!parent.empty()) names = {std::move(parent)};
    std::move(names.begin(), names.end(), std::back_inserter(out));
  }
  return out;
}

}  // namespace

bool is_auto_round_format(std::string_view format) {
  const auto* const known = std::find_if(std::begin(formats), std::end(formats),
                                         [&](const auto& one) { return one.first == format; });
  return known != std::end(formats) || is_affine_format(format) || is_fp8_format(format) ||
         format == "fake" || format == "auto_round:fake" ||
         format.find("llm_compressor") != std::string_view::npos;
}

MlxSpec mlx_spec_of(const IntegerConfig& config, const std::string& module) {
  MlxSpec out;
  if (config.mlx == nullptr) return out;
  const Json* own = config.mlx->find(module);
  out.plain = own != nullptr && own->as_bool() == false;
  for (const Json* place : {config.mlx, own}) {
    if (place == nullptr || !place->is_object()) continue;
    const Json* bits = place->find("bits");
    const Json* size = place->find("group_size");
    if (bits != nullptr && bits->as_int64()) out.bits = bits->as_int64();
    if (size != nullptr && size->as_int64()) out.group_size = size->as_int64();
    if (std::string mode = word_at(*place, "mode"); !mode.empty()) out.mode = lower_ascii(mode);
  }
  return out;
}

IntegerConfig read_auto_round_config(const Declaration& declaration) {
  IntegerConfig config;
  config.producer = Producer::auto_round;
  config.where = declaration.where;
  const ConfigSection section(*declaration.block, declaration.where);
  config.base.data_type = read_data_type(section);
  read_sizes(section, {}, config.base, config.problems);
  config.base.symmetric = value_or_problem(section.boolean({"sym"}), config.problems);
  config.base.act_order = false;
  config.format = read_name(section, {"packing_format"}).text;
  for (const auto& [name, packing] : formats) {
    if (config.format == name) config.packing = packing;
  }
  if (!config.format.empty() && !is_auto_round_format(config.format)) {
    config.problems.push_back(
        {ErrorCode::unsupported,
         "packing_format " + quote(config.format) + " is not known; the tensors decide",
         config.where});
  }
  const Json* mlx = declaration.file != nullptr && declaration.file->is_object() &&
                            is_affine_format(config.format)
                        ? declaration.file->find("quantization")
                        : nullptr;
  if (mlx != nullptr && mlx != declaration.block && mlx->is_object()) {
    config.mlx = mlx;
    config.mlx_where = "quantization beside " + config.where;
  }
  config.rules.read_as(rule_dialect(Producer::auto_round), declaration.budget);
  read_rules(section, config);
  read_excluded(declaration, config);
  const ConfigSection::Entry blocks =
      section.find({"block_name_to_quantize", "to_quant_block_names", "quant_block_list"});
  std::vector<PatternEntry> entries;
  for (std::string& name : block_names(blocks.value)) {
    entries.push_back({std::move(name), declaration.where + "." + std::string(blocks.key), true});
  }
  if (!entries.empty()) {
    config.blocks.emplace(Dialect{.literal = PatternKind::components}, std::move(entries));
  }
  return config;
}

}  // namespace fewbit
