// SPDX-License-Identifier: Apache-2.0
// GPTQ's block: config.json quantization_config or quantize_config.json, of AutoGPTQ and GPTQModel.
#include <fmt/format.h>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/integer_config.hpp"

namespace fewbit {
namespace {

void read_format(const ConfigSection& section, const Declaration& declaration,
                 IntegerConfig& config) {
  const ConfigName format = read_name(section, {"checkpoint_format", "format", "version"});
  const auto marlin = value_or_problem(section.boolean({"is_marlin_format"}), config.problems);
  config.format = format.text.empty() ? "gptq" : format.text;
  const std::string method = lower_ascii(declaration.method);
  if (method == "marlin" || marlin.value_or(false)) config.format = "marlin";
  if (method == "bitblas") config.format = "bitblas";
  if (!format.odd.empty()) {
    config.obstacle = format.odd + ": whether its zero points are one too small is not known";
  } else if (config.format == "gptq") {
    config.packing = Packing::words_k_minus;
  } else if (config.format == "gptq_v2") {
    config.packing = Packing::words_k;
  } else if (config.format == "gptq_p") {
    // Its planes of bits are words of whole codes at these widths.
    config.packing = Packing::words_k;
    const std::int64_t bits = config.base.bits.value_or(4);
    if (bits != 2 && bits != 4 && bits != 8) {
      config.obstacle = fmt::format("checkpoint_format gptq_p of {} bits is not readable", bits);
    }
  } else {
    config.obstacle = fmt::format("checkpoint_format {} of {} is not readable",
                                  quote(config.format), declaration.where);
  }
}

void read_container(const ConfigSection& section, IntegerConfig& config) {
  const ConfigName dtype = read_name(section, {"pack_dtype"});
  if (!dtype.odd.empty()) config.obstacle = dtype.odd + ", expected int32";
  if (dtype.text.empty() || dtype.text == "int32" || dtype.text == "torch.int32") return;
  config.obstacle = fmt::format("pack_dtype {} is not readable, expected int32", quote(dtype.text));
}

// "-:regex" leaves a module alone, "+:regex" or "regex" changes its scheme. Only these four keys of
// a rule have a meaning for the tensors.
void read_rules(const ConfigSection& section, IntegerConfig& config) {
  const ConfigSection::Entry entry = section.find({"dynamic"});
  if (!entry) return;
  const Json::Object* rules = entry.value->as_object();
  if (rules == nullptr) return;
  for (const auto& [key, overrides] : *rules) {
    IntegerRule rule;
    rule.text = key;
    rule.excludes = key.starts_with("-:");
    std::string_view regex = key;
    if (rule.excludes || regex.starts_with("+:")) regex.remove_prefix(2);
    const std::string where = config.where + ".dynamic " + quote(key);
    const ConfigSection values(overrides, where);
    read_bits_and_groups(values, {"bits"}, {"group_size"}, rule.spec, config.problems);
    rule.spec.symmetric = value_or_problem(values.boolean({"sym"}), config.problems);
    rule.spec.act_order = value_or_problem(values.boolean({"desc_act"}), config.problems);
    const auto added = config.rules.add_pattern(std::move(rule), regex, where);
    if (!added) config.problems.push_back(added.error());
  }
}

}  // namespace

IntegerConfig read_gptq_config(const Declaration& declaration) {
  IntegerConfig config;
  config.producer = Producer::gptq;
  config.where = declaration.where;
  const ConfigSection section(*declaration.block, declaration.where);
  read_bits_and_groups(section, {"bits", "w_bit", "wbits"}, {"group_size", "q_group_size"},
                       config.base, config.problems);
  config.base.symmetric = value_or_problem(section.boolean({"sym"}), config.problems);
  const auto zeros = value_or_problem(section.boolean({"zero_point"}), config.problems);
  if (!config.base.symmetric && zeros) config.base.symmetric = !*zeros;
  config.base.act_order = value_or_problem(section.boolean({"desc_act"}), config.problems);
  config.lm_head = value_or_problem(section.boolean({"lm_head"}), config.problems);
  read_format(section, declaration, config);
  read_container(section, config);
  config.rules.read_as(rule_dialect(Producer::gptq), declaration.budget);
  read_rules(section, config);
  read_excluded(declaration, config);
  config.modules_in_block = names_in(section.find({"modules_in_block_to_quantize"}).value);
  return config;
}

}  // namespace fewbit
