// SPDX-License-Identifier: Apache-2.0
// AutoRound's block, for its formats with integer codes.
#include <algorithm>

#include "core/ascii.hpp"
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

}  // namespace

IntegerConfig read_auto_round_config(const Declaration& declaration) {
  IntegerConfig config;
  config.producer = Producer::auto_round;
  config.where = declaration.where;
  const ConfigSection section(*declaration.block, declaration.where);
  read_bits_and_groups(section, {"bits"}, {"group_size"}, config);
  config.base.symmetric = value_or_problem(section.boolean({"sym"}), config.problems);
  config.base.act_order = false;
  const auto format = value_or_problem(section.string({"packing_format"}), config.problems);
  config.format = lower_ascii(format.value_or(""));
  for (const auto& [name, packing] : formats) {
    if (config.format == name) config.packing = packing;
  }
  return config;
}

}  // namespace fewbit
