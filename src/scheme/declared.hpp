// SPDX-License-Identifier: Apache-2.0
// What the config files of a checkpoint say about its quantization. Tensors outrank it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/scheme.hpp"
#include "scheme/module_match.hpp"

namespace fewbit {

struct Declaration {
  Producer producer = Producer::unknown;
  std::string method;  // as written: "modelopt", "gptq", "" when the block has none
  std::string where;   // "config.json quantization_config"
  std::shared_ptr<const Json> file;
  const Json* block = nullptr;  // inside *file, or *merged
  // Of the patterns in all declarations of a checkpoint.
  std::shared_ptr<MatchBudget> budget = nullptr;
  // Of a block inside of another (nested_block()): what both say.
  std::shared_ptr<const Json> merged = nullptr;
  // What the outer one says, and the inner one otherwise, key by key.
  std::vector<std::pair<std::string, std::string>> hidden = {};
};

struct Declared {
  // In order of precedence: config.json before hf_quant_config.json, quant_cfg.json,
  // quantize_config.json and quant_config.json.
  std::vector<Declaration> all;

  const Declaration* first() const { return all.empty() ? nullptr : &all.front(); }
  bool says(Producer producer) const;
};

// What keeps a block from naming a method: "is 7, expected an object with quant_method"; empty when
// it names one, or is a file of its own that need not.
std::string declared_problem(const Json& block);

// What in the block says that plain tensors are what it speaks of; empty where nothing does.
// AutoRound's packing_format "auto_round:fake" (decoded again before they were stored), ModelOpt's
// and TensorRT-LLM's quant_algo null, compressed-tensors' format "dense" and blocks for the
// key/value cache alone.
std::string plain_statement(const Declaration& declaration);

// Whether AutoRound wrote it in another producer's format: "provider": "auto-round",
// autoround_version, its name among the quantizers.
bool written_by_auto_round(const Declaration& declaration);

// Errors only when a config file can't be read or is not JSON.
Result<Declared> read_declared(const Checkpoint& checkpoint);

}  // namespace fewbit
