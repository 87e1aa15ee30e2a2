// SPDX-License-Identifier: Apache-2.0
// AWQ's block: config.json quantization_config or quant_config.json.
#include <fmt/format.h>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/integer_config.hpp"
#include "scheme/module_rules.hpp"

namespace fewbit {
namespace {

constexpr std::pair<std::string_view, Packing> formats[] = {
    {"gemm", Packing::words_n},
    // Repacked while loading; on disk as GEMM.
    {"marlin", Packing::words_n},
    {"exllama", Packing::words_n},
    {"ipex", Packing::words_n},
    {"gemv", Packing::words_gemv},
    {"gemv_fast", Packing::shorts_gemv},
    {"gemvfast", Packing::shorts_gemv},
    {"llm-awq", Packing::shorts_gemv},
};

}  // namespace

IntegerConfig read_awq_config(const Declaration& declaration) {
  IntegerConfig config;
  config.producer = Producer::awq;
  config.where = declaration.where;
  const ConfigSection section(*declaration.block, declaration.where);
  read_bits_and_groups(section, {"bits", "w_bit"}, {"group_size", "q_group_size"}, config.base,
                       config.problems);
  const auto zeros = value_or_problem(section.boolean({"zero_point"}), config.problems);
  if (zeros) config.base.symmetric = !*zeros;
  config.base.act_order = false;
  read_excluded(declaration, config);
  const ConfigName version = read_name(section, {"version", "checkpoint_format"});
  config.format = version.text;
  for (const auto& [name, packing] : formats) {
    if (config.format == name) config.packing = packing;
  }
  if (!version.odd.empty()) {
    config.obstacle = "AWQ " + version.odd;
  } else if (!config.format.empty() && !config.packing) {
    config.obstacle =
        fmt::format("AWQ version {} of {} is not known", quote(config.format), config.where);
  }
  return config;
}

}  // namespace fewbit
