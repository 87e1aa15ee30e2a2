// SPDX-License-Identifier: Apache-2.0
// What the commands that run a model share.
#pragma once

#include <memory>
#include <string>

#include "command.hpp"

namespace fewbit::cli {

struct ModelCommandOptions : CommonOptions {
  std::string path;
  std::string activation_dtype = "bf16";
  std::string backend;
  std::string device = "cpu";  // of the experts
};
void add_model_options(CLI::App& command, ModelCommandOptions& options);

struct LoadedModel {
  Model model;
  Tokenizer tokenizer;
};
// max_tokens: most tokens of one forward call.
Result<LoadedModel> load_model(const ModelCommandOptions& options, std::int64_t max_tokens);

// Model, backend, numerics and memory: as the head of a JSON report, and as one line.
Json model_json(const ModelCommandOptions& options, const Model& model);
std::string model_line(const ModelCommandOptions& options, const Model& model);

}  // namespace fewbit::cli
