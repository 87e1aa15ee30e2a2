// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_config.hpp"

namespace fewbit {

void read_bits_and_groups(const ConfigSection& section, ConfigSection::Keys bits,
                          ConfigSection::Keys group_size, IntegerConfig& config) {
  constexpr std::int64_t largest_group = std::int64_t{1} << 40;
  config.base.bits = value_or_problem(section.integer(bits, 1, 32), config.problems);
  config.base.group_size =
      value_or_problem(section.integer(group_size, -1, largest_group), config.problems);
  if (config.base.group_size == -1) config.base.group_size = 0;
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

}  // namespace fewbit
