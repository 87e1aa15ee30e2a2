// SPDX-License-Identifier: Apache-2.0
// fewbit explain DIR: the backend table of a layer: chosen, refused, every reason. Of any machine,
// any engine, and of published layers without a checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "command.hpp"
#include "explain_page.hpp"
#include "explain_prepared.hpp"
#include "layer_dtype.hpp"
#include "problem_options.hpp"
#include "scheme/part_of_model.hpp"
#include "select/activation_default.hpp"
#include "select/layer_problem.hpp"
#include "select/select.hpp"
#include "terminal.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string path;
  DeviceOption device;
  SpreadOptions spread;
  ProblemOptions problem;
  std::string backend;
  std::string activation_dtype;
  int layer = -1;
};

Result<MoeLayers> layers_of(const Options& options, const Checkpoint& checkpoint,
                            const Identified& identified, const ModelConfig& config, DType dtype) {
  if (options.layer < 0) return moe_layer_problems(checkpoint, identified, config, dtype);
  MoeLayers one;
  FEWBIT_TRY(MoeProblem problem,
             moe_layer_problem(checkpoint, identified, config, options.layer, dtype));
  one.emplace(options.layer, std::move(problem));
  return one;
}

// Those that can't be asked about are told; of a part of a model the rest may be elsewhere.
void note_unknown(const MoeLayers& layers, const Checkpoint& checkpoint, Answer& answer) {
  if (is_part_of_model(checkpoint)) return;
  for (const auto& [layer, problem] : layers) {
    if (problem || !answer.unknown.empty()) continue;
    answer.unknown = fmt::format("layer {}: {}", layer, problem.error().message());
  }
}

Result<void> answer_of_model(const Options& options, Answer& answer) {
  FEWBIT_TRY(const Checkpoint checkpoint, open_checkpoint(options.path));
  FEWBIT_TRY(const Identified identified, identify(checkpoint));
  FEWBIT_TRY(const ModelConfig config, layer_config(checkpoint, identified));
  const DType dtype = layer_dtype(options.activation_dtype)
                          .value_or(default_activation_dtype(answer.engine, config.dtype));
  FEWBIT_TRY(const MoeLayers layers, layers_of(options, checkpoint, identified, config, dtype));
  answer.splits = plan_splits(checkpoint, identified);
  answer.preparable = true;
  std::vector<LayerGroup> groups = group_layers(layers);
  if (options.layer < 0) {
    FEWBIT_TRY(const LayerProblem first, first_moe_layer(checkpoint, layers, config));
    std::stable_partition(groups.begin(), groups.end(), [&](const LayerGroup& group) {
      return std::ranges::find(group.layers, first.layer) != group.layers.end();
    });
  }
  note_unknown(layers, checkpoint, answer);
  for (LayerGroup& group : groups) {
    auto decision = decide_layer_of(checkpoint, identified, group.problem, answer.parallel,
                                    answer.device, {options.backend, answer.engine});
    if (!decision) return ranks_by_option(decision.error());
    answer.layers.push_back(
        {std::move(group.layers), std::move(group.problem), *std::move(decision)});
  }
  return {};
}

// A published layer.
Result<void> answer_of_layer(const Options& options, Answer& answer) {
  const DType dtype = layer_dtype(options.activation_dtype).value_or(DType::bf16);
  FEWBIT_TRY(MoeProblem whole, named_problem(options.problem, dtype));
  auto decision =
      decide_layer(whole, answer.parallel, answer.device, {options.backend, answer.engine});
  if (!decision) return ranks_by_option(decision.error());
  answer.layers.push_back({{}, std::move(whole), *std::move(decision)});
  return {};
}

Result<Answer> answer_for(const Options& options) {
  Answer answer;
  FEWBIT_TRY(answer.device, describe_device(options.device.text));
  FEWBIT_TRY(answer.engine, options.spread.engine_asked());
  FEWBIT_TRY(answer.parallel, options.spread.parallel());
  const bool model = options.problem.name.empty();
  FEWBIT_TRY(model ? answer_of_model(options, answer) : answer_of_layer(options, answer));
  for (LayerAnswer& one : answer.layers) {
    std::optional<Error>& refused = one.decision.refused;
    if (refused && refused->where == "backend") refused->where = "--backend";
  }
  return answer;
}

// A forced backend that refuses is worth its own words; for the rest there is the table.
std::string way_out(const LayerDecision& decision, bool convertible) {
  const Error& error = *decision.refused;
  const std::string none = none_of_them_text(decision.selection);
  // The table has the rest of it.
  if (!error.what.starts_with(none)) return "error: " + printable_message(error.message()) + "\n";
  if (decision.selection.engine != Engine::fewbit) {
    return fmt::format("error: {} as it is{}; its others are not known here\n", none,
                       decision.legal_ranks);
  }
  if (!convertible) return "error: " + none + decision.legal_ranks + "\n";
  return "error: " + none + decision.legal_ranks +
         "; `fewbit convert DIR -o OUT --to bf16` writes weights that one can\n";
}

PreparedQuestion prepared_question(const Options& options) {
  return {.path = options.path,
          .layer = options.layer,
          .device = options.device.text,
          .spread = options.spread,
          .backend = options.backend,
          .activation_dtype = layer_dtype(options.activation_dtype),
          .json = options.json};
}

Result<int> run_explain(const Options& options) {
  if (options.path.empty() && options.problem.name.empty() && !options.problem.file.empty()) {
    FEWBIT_TRY(const std::string names, problem_names(options.problem));
    print_out("{}\n", Lines{names});
    return exit_fine;
  }
  if (options.path.empty() == options.problem.name.empty()) {
    constexpr const char* what = "expected either DIR or --problem";
    print_usage_error(what, options.json);
    print_err("error: explain: {}\n", what);
    return exit_usage;
  }
  if (!options.path.empty() && is_prepared(options.path)) {
    return explain_prepared(prepared_question(options));
  }
  FEWBIT_TRY(const Answer answer, answer_for(options));
  if (options.json) {
    print_json(answer_json(answer));
  } else {
    print_out("{}", Lines{answer_text(answer)});
  }
  std::fflush(stdout);
  const LayerAnswer* refused = refused_layers(answer);
  if (refused == nullptr) return exit_fine;
  const LayerDecision& decision = refused->decision;
  const bool convertible = !options.path.empty() && plain_would_run(decision.share, answer.device);
  print_err("{}", Lines{wrapped_page(way_out(decision, convertible), error_columns())});
  return is_usage_error(*decision.refused) ? exit_usage : exit_failure;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("explain", "Which backend runs an MoE layer, and why the others don't");
  command
      ->add_option("DIR", options->path, "Checkpoint directory, index or file; or prepared folder")
      ->check(not_empty);
  command
      ->add_option("--layer", options->layer,
                   "Layer (default: all MoE layers; of a prepared folder the first)")
      ->check(whole_number(0, 1 << 20))
      ->default_str("");
  add_device_option(*command, options->device);
  add_spread_options(*command, options->spread);
  add_problem_options(*command, options->problem);
  add_any_backend_option(*command, options->backend);
  add_layer_dtype_option(*command, options->activation_dtype);
  add_json_option(*command, *options);
  const auto built_in = problem_names({});
  command->footer(
      "Examples:\n  fewbit explain models/tiny-moe\n"
      "  fewbit explain DIR --device cpu:avx2 --json\n"
      "  fewbit explain DIR --engine vllm --device sm_90 --tp 4\n"
      "  fewbit explain --problem gpt-oss-20b/mxfp4 --engine vllm --device sm_120\n"
      "A backend of another engine is forced with --engine and --backend together, to see what it\n"
      "would refuse; FEWBIT_BACKEND forces only what runs here. --tp and --ep take what `fewbit "
      "check`\ncalls legal for the experts; other engines take even shares only, but for gpt-oss's "
      "MXFP4.\n\n" +
      (built_in ? *built_in : ""));
  set_body(*command, *options, exit_code, [options] { return run_explain(*options); });
}

}  // namespace fewbit::cli
