// SPDX-License-Identifier: Apache-2.0
// fewbit explain DIR: the backend table of a layer: chosen, refused, every reason.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "command.hpp"
#include "layer_problem.hpp"
#include "prepared_page.hpp"
#include "select/select.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::string device = "cpu";
  std::string backend;
  std::string activation_dtype = "bf16";
  int layer = -1;
};

Result<MoeProblem> problem_of(const Options& options) {
  FEWBIT_TRY(const DType dtype, parse_activation_dtype(options.activation_dtype));
  if (is_prepared(options.path)) return prepared_problem(options.path, options.layer, dtype);
  FEWBIT_TRY(const Checkpoint checkpoint, Checkpoint::open(options.path));
  FEWBIT_TRY(const Identified identified, identify(checkpoint));
  FEWBIT_TRY(const ModelConfig config, read_model_config(checkpoint));
  if (options.layer >= 0) {
    return moe_layer_problem(checkpoint, identified, config, options.layer, dtype);
  }
  FEWBIT_TRY(LayerProblem layer, first_moe_layer(checkpoint, identified, config, dtype));
  return std::move(layer.problem);
}

std::string check_device(const std::string& text) {
  const auto device = describe_device(text);
  return device ? "" : device.error().message();
}

// A forced backend that refuses is worth its own words; for the rest there is the table.
std::string way_out(const Error& error, const Selection& selection) {
  const bool possible = std::any_of(selection.candidates.begin(), selection.candidates.end(),
                                    [](const Candidate& c) { return c.refusals.empty(); });
  if (possible) return "error: " + printable(error.message()) + "\n";
  return "error: no backend can run it; `fewbit convert DIR -o OUT --to bf16` writes weights that "
         "every backend runs\n";
}

Json problem_json(const MoeProblem& problem) {
  Json out;
  out.set("hidden_size", problem.hidden_size);
  out.set("intermediate_size", problem.intermediate_size);
  out.set("num_experts", problem.num_experts);
  out.set("top_k", std::int64_t{problem.top_k});
  out.set("gate_up_scheme", scheme_text(problem.gate_up));
  out.set("down_scheme", scheme_text(problem.down));
  out.set("weight_dtype", dtype_name(problem.gate_up.weight));
  out.set("activation", activation_name(problem.activation.kind));
  out.set("activation_dtype", dtype_name(problem.activation_dtype));
  out.set("biases", problem.biases);
  return out;
}

Result<int> run_explain(const Options& options) {
  FEWBIT_TRY(const MoeProblem problem, problem_of(options));
  FEWBIT_TRY(const DeviceInfo device, describe_device(options.device));
  FEWBIT_TRY(Selection selection, examine_backends(problem, device));
  const auto choice = select_backend(problem, device, {options.backend});
  if (choice) selection = *choice;
  const bool usage = !choice && is_environment_error(choice.error());
  if (options.json) {
    Json out = selection_json(selection);
    out.set("layer", problem.where);
    out.set("problem", problem_json(problem));
    out.set("device", device.name);
    if (!choice) out.set("error", choice.error().message());
    print_json(out);
  } else {
    if (is_prepared(options.path)) {
      FEWBIT_TRY(const std::string line, prepared_line(options.path));
      print_out("{}\n\n", line);
    }
    print_out("{}", explain(problem, device, selection));
    std::fflush(stdout);
  }
  if (!choice && !options.json) print_err("{}", way_out(choice.error(), selection));
  if (usage) return exit_usage;
  return choice ? exit_fine : exit_failure;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("explain", "Which backend runs an MoE layer, and why the others don't");
  command->add_option("DIR", options->path, "Checkpoint directory, index or file")
      ->required()
      ->check(not_empty);
  command->add_option("--layer", options->layer, "Layer (default: the first MoE layer)")
      ->check(CLI::Range(0, 1 << 20));
  command
      ->add_option("--device", options->device,
                   "cpu (this machine), cpu:generic, cpu:neon, cpu:avx2, cpu:avx512, cpu:amx")
      ->check(CLI::Validator(check_device, "DEVICE"));
  add_backend_option(*command, options->backend);
  add_activation_dtype_option(*command, options->activation_dtype);
  add_json_option(*command, *options);
  command->footer(
      "Examples:\n  fewbit explain models/tiny-moe\n"
      "  fewbit explain DIR --device cpu:avx2 --json");
  set_body(*command, *options, exit_code, [options] { return run_explain(*options); });
}

}  // namespace fewbit::cli
