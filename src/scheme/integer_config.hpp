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
#include "scheme/integer_rules.hpp"

namespace fewbit {

// Columns; larger numbers are none.
inline constexpr std::int64_t largest_group_size = std::int64_t{1} << 40;

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
  IntegerRules rules;
  // Modules that stay 16-bit, and the only ones that are quantized: those of AutoRound's
  // blocks, names that end so (GPTQ's modules of a block). Empty: no such list.
  std::optional<ModuleRules> excluded;
  std::optional<ModuleRules> blocks;
  std::vector<std::string> modules_in_block;
  std::optional<bool> lm_head;
  // MLX's own block "quantization" beside AutoRound's; nullptr: none. Borrowed from the file.
  const Json* mlx = nullptr;
  std::string mlx_where;
  // Values that are not known or contradict each other. Those of a wrong kind are ignored, and
  // check_config_values() names them.
  std::vector<Error> problems;
};

// AutoRound's names of MLX's layout, which has no words of GPTQ or AWQ.
constexpr bool is_affine_format(std::string_view format) {
  return format == "auto_round:mlx" || format == "mlx";
}

// 8-bit floats without groups of 32.
constexpr bool is_fp8_format(std::string_view format) {
  return format == "fp8" || format == "fp8_static" || format == "auto_round:fp8" ||
         format == "auto_round:fp8_static";
}
// Whether it is one of AutoRound's packing_formats, in lower case.
bool is_auto_round_format(std::string_view format);

// What MLX's block says of a module.
struct MlxSpec {
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;
  std::string mode;    // "affine", "mxfp4"; empty where not stated
  bool plain = false;  // its name stands there with false
};
MlxSpec mlx_spec_of(const IntegerConfig& config, const std::string& module);

// Empty when the block is another producer's.
std::optional<IntegerConfig> read_integer_config(const Declaration& declaration);
// What the config says of one module: its rule, else the same for all.
IntegerSpec spec_of(const IntegerConfig& config, const std::string& module);
struct Exclusion {
  std::string why;      // "rule \"-:.*gate\""; empty: not excluded
  bool partly = false;  // some of the parts that are stored as one are excluded, others not
};
// Whether the config leaves a module at 16 bits.
Exclusion exclusion_of(const IntegerConfig& config, const Module& module);
// Whether a rule, or the list of modules that are quantized in a block, names it.
bool names_module(const IntegerConfig& config, const std::string& module);
// The first of them; empty when there is none.
std::optional<IntegerConfig> first_integer_config(const Declared& declared);

// One function a producer, in its own file.
IntegerConfig read_gptq_config(const Declaration& declaration);
IntegerConfig read_awq_config(const Declaration& declaration);
IntegerConfig read_auto_round_config(const Declaration& declaration);

// The value; of the wrong kind: nothing. A contradiction is a problem.
template <class T>
std::optional<T> value_or_problem(Result<std::optional<T>> value, std::vector<Error>& problems) {
  if (value) return *std::move(value);
  if (value.error().code != ErrorCode::corrupt) problems.push_back(value.error());
  return std::nullopt;
}
// A name under the first of the keys that is there.
struct ConfigName {
  std::string text;  // lower case; empty: absent, or no name
  std::string odd;   // "format [] of config.json is no name"; empty: absent, or a name
};
ConfigName read_name(const ConfigSection& section, ConfigSection::Keys keys);
// bits and group_size: the first of the keys that is there.
void read_bits_and_groups(const ConfigSection& section, ConfigSection::Keys bits,
                          ConfigSection::Keys group_size, IntegerSpec& spec,
                          std::vector<Error>& problems);
// The lists of modules that stay as they are, under all their names.
void read_excluded(const Declaration& declaration, IntegerConfig& config);
void read_group_size(const ConfigSection& section, ConfigSection::Keys group_size,
                     IntegerSpec& spec);
// Every string in a string (split at commas), a list, or a list of lists.
std::vector<std::string> names_in(const Json* value);

}  // namespace fewbit
