// SPDX-License-Identifier: Apache-2.0
// What a model family is: how its checkpoint becomes a decoder. One row of families/list.cpp.
#pragma once

#include <span>
#include <string_view>

#include "fewbit/result.hpp"
#include "model/decoder.hpp"
#include "model/weight_reader.hpp"

namespace fewbit {

struct Family {
  std::string_view model_type;
  Result<DecoderParts> (*load)(WeightReader& reader);
};

extern const Family qwen3_moe_family;

std::span<const Family* const> all_families();
// Error unsupported lists the known ones.
Result<const Family*> find_family(const ModelConfig& config, const std::string& where);

}  // namespace fewbit
