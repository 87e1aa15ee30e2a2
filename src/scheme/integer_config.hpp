// SPDX-License-Identifier: Apache-2.0
// What the configs of GPTQ, AWQ and AutoRound say of integer-quantized modules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/config_section.hpp"
#include "scheme/declared.hpp"

namespace fewbit {

// Of one module, or of all that no rule names. Empty: not stated.
struct IntegerSpec {
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;  // 0 = whole rows (-1 in the file)
  std::optional<bool> symmetric;
  std::optional<bool> act_order;
};

struct IntegerConfig {
  Producer producer = Producer::gptq;
  std::string where;
  std::string format;  // lower case: "gptq_v2", "gemm", "auto_round:auto_awq"; may be empty
  // What the format says: words_k (zeros as they are), words_k_minus, words_n, words_gemv,
  // shorts_gemv. Empty: nothing.
  std::optional<Packing> packing;
  // Why modules of this format can't be read: "checkpoint_format \"marlin\" is not readable".
  std::string obstacle;
  IntegerSpec base;
  std::optional<bool> lm_head;
  std::vector<Error> problems;  // values of the wrong kind, which are ignored
};

// Empty when the block is another producer's.
std::optional<IntegerConfig> read_integer_config(const Declaration& declaration);
// The first of them; empty when there is none.
std::optional<IntegerConfig> first_integer_config(const Declared& declared);

// One function a producer, in its own file.
IntegerConfig read_gptq_config(const Declaration& declaration);
IntegerConfig read_awq_config(const Declaration& declaration);
IntegerConfig read_auto_round_config(const Declaration& declaration);

// The value; of the wrong kind: nothing, and a problem.
template <class T>
std::optional<T> value_or_problem(Result<std::optional<T>> value, std::vector<Error>& problems) {
  if (value) return *std::move(value);
  problems.push_back(value.error());
  return std::nullopt;
}
// bits, group_size: the first of `keys`.
void read_bits_and_groups(const ConfigSection& section, ConfigSection::Keys bits,
                          ConfigSection::Keys group_size, IntegerConfig& config);

}  // namespace fewbit
