// SPDX-License-Identifier: Apache-2.0
#include "scheme/fp8_config.hpp"

#include <utility>

#include "checkpoint/json_text.hpp"
#include "core/ascii.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

// Lower case; empty when absent or no name.
std::string text_of(const Json& block, std::string_view key) {
  return lower_ascii(word_at(block, key));
}

// Also the pair that some producers put in group_size.
std::pair<std::string_view, const Json*> block_size_of(const Json& block) {
  for (const std::string_view key : {"weight_block_size", "group_size"}) {
    const Json* value = block.find(key);
    if (value == nullptr || value->is_null()) continue;
    if (key == "group_size" && !value->is_array()) continue;
    return {key, value};
  }
  return {};
}

void read_block_size(const Json& block, Fp8Config& config) {
  const auto [key, value] = block_size_of(block);
  if (value == nullptr) return;
  const Json::Array* sizes = value->as_array();
  if (sizes != nullptr && sizes->size() == 2) {
    const auto rows = (*sizes)[0].as_int64();
    const auto cols = (*sizes)[1].as_int64();
    if (rows && cols && *rows > 0 && *cols > 0) config.block = Granularity{*rows, *cols};
  }
  if (!config.block) config.bad_block = std::string(key) + " " + value_text(*value);
}

}  // namespace

std::optional<Fp8Config> read_fp8_config(const Declared& declared) {
  for (const Declaration& declaration : declared.all) {
    const Json& block = *declaration.block;
    Fp8Config config;
    read_block_size(block, config);
    config.format = text_of(block, "fmt");
    config.scale_format = text_of(block, "scale_fmt");
    const bool speaks = declaration.producer == Producer::fp8 || config.block ||
                        !config.bad_block.empty() || !config.scale_format.empty();
    if (!speaks) continue;
    config.where = declaration.where;
    config.method = lower_ascii(declaration.method);
    // The one block of that method.
    const bool sized = config.block || !config.bad_block.empty();
    if (config.method == "mxfp8" && !sized) config.block = Granularity{1, 32};
    config.activation = text_of(block, "activation_scheme");
    config.expert_dtype = text_of(block, "expert_dtype");
    if (config.expert_dtype.empty())
      config.expert_dtype = text_of(*declaration.file, "expert_dtype");
    config.scale_semantics = text_of(block, "weight_scale_semantics");
    return config;
  }
  return std::nullopt;
}

}  // namespace fewbit
