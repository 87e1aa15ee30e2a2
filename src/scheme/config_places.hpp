// SPDX-License-Identifier: Apache-2.0
// Where a config speaks of quantization: which keys, in which of its sections.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"

namespace fewbit {

// An object inside config.json, and the path of its keys.
struct ConfigPlace {
  const Json* object = nullptr;
  std::string path;  // "text_config."
};
// config.json and the parts of a model that it is made of, outer ones first: a method may be told
// in any of them.
// About as many objects are looked into.
inline constexpr std::size_t most_config_places = 10'000;
std::vector<ConfigPlace> config_places(const Json& config);

// What a member says of the weights, in any spelling of its key.
enum class QuantizationKey {
  none,
  block,   // quantization_config, compression_config, quant_config, quantize_config, quantization
  sparse,  // sparsity_config of weights that are not all there
  method,  // quant_method, quant_algo: the object around it is a block
  text,    // quantize, quantization_scheme and others that are a method's name
  flag,    // load_in_4bit, load_in_8bit
};
// none too where the value says nothing: null, false, "", "none", the name of a plain type, an
// empty list, an object of nothing else.
// Such a value: null, false, "", "none" …
bool says_nothing(const Json& value);
// One of the keys above, whatever its value.
bool is_quantization_key(std::string_view name);
QuantizationKey quantization_key(std::string_view name, const Json& value);

}  // namespace fewbit
