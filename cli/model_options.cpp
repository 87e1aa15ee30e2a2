// SPDX-License-Identifier: Apache-2.0
#include "model_options.hpp"

#include <fmt/format.h>

#include "findings_page.hpp"
#include "progress.hpp"

namespace fewbit::cli {
namespace {

std::string backend_of(const Model& model) {
  const auto& selections = model.report().moe_selections;
  return selections.empty() ? "none" : selections.front().chosen;
}

// Where the rest of a model lies that an index or a file may name.
std::filesystem::path folder_of(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path : path.parent_path();
}

}  // namespace

void add_model_options(CLI::App& command, ModelCommandOptions& options) {
  command
      .add_option("MODEL", options.path,
                  "Checkpoint directory with config and tokenizer, its index, or a prepared one")
      ->required()
      ->check(not_empty);
  add_activation_dtype_option(command, options.activation_dtype);
  add_backend_option(command, options.backend);
  add_run_device_option(
      command, options.device,
      "What runs the experts, and on a GPU quantized dense layers; the rest runs on the CPU");
  add_threads_option(command, options);
  add_json_option(command, options);
}

Result<LoadedModel> load_model(const ModelCommandOptions& options, std::int64_t max_tokens) {
  ModelOptions model_options;
  FEWBIT_TRY(model_options.activation_dtype, parse_activation_dtype(options.activation_dtype));
  model_options.max_tokens = max_tokens;
  model_options.backend = options.backend;
  model_options.device = options.device;
  FEWBIT_TRY(std::shared_ptr<Executor> pool, make_thread_pool(options.threads));
  ProgressBar bar("preparing", Unit::bytes);
  model_options.progress = bar.callback();
  FEWBIT_TRY(refuse_unfinished(options.path));
  FEWBIT_TRY(Model model, Model::load(options.path, model_options, std::move(pool)));
  const std::filesystem::path file = folder_of(options.path) / "tokenizer.json";
  FEWBIT_TRY(Tokenizer tokenizer, Tokenizer::open(file));
  if (tokenizer.vocab_size() > model.config().vocab_size) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("token ids up to {}, but vocab_size of config.json is {}",
                             tokenizer.vocab_size() - 1, model.config().vocab_size),
                 file.string()};
  }
  const auto& warnings = model.report().source_warnings;
  if (!warnings.empty()) {
    print_err("note: {}", Lines{source_warnings_text(warnings, "is computed with")});
  }
  return LoadedModel{std::move(model), std::move(tokenizer)};
}

Json model_json(const ModelCommandOptions& options, const Model& model) {
  const ModelReport& report = model.report();
  Json out;
  out.set("model", options.path);
  out.set("backend", backend_of(model));
  out.set("device", options.device);
  out.set("dense_layers_on_gpu", report.dense_on_gpu);
  out.set("dense_layers_on_cpu", report.dense_on_cpu);
  out.set("activation_dtype", options.activation_dtype);
  out.set("checkpoint_bytes", report.checkpoint_bytes);
  out.set("prepared_bytes", report.owned_bytes);
  out.set("mapped_bytes", report.mapped_bytes);
  out.set("load_seconds", report.load_seconds);
  out.set("source_warnings", findings_json(report.source_warnings));
  return out;
}

std::string model_line(const ModelCommandOptions& options, const Model& model) {
  const ModelReport& report = model.report();
  std::string dense;
  if (report.dense_on_gpu > 0) {
    dense = fmt::format(" and {} of {} dense layers", report.dense_on_gpu,
                        report.dense_on_gpu + report.dense_on_cpu);
  }
  return fmt::format(
      "experts{} on {}{}, {} activations, loaded in {:.0f} ms, peak memory {} (checkpoint {})",
      dense, backend_of(model), options.device == "cuda" ? ", the rest on the CPU" : "",
      options.activation_dtype, report.load_seconds * 1e3, bytes_text(peak_rss_bytes()),
      bytes_text(report.checkpoint_bytes));
}

}  // namespace fewbit::cli
