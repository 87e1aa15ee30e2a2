// SPDX-License-Identifier: Apache-2.0
// fewbit explain DIR: the backend table of a layer: chosen, refused, every reason. Of any machine,
// any engine, and of published layers without a checkpoint.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "command.hpp"
#include "core/counted.hpp"
#include "layer_dtype.hpp"
#include "layer_problem.hpp"
#include "prepared_page.hpp"
#include "problem_options.hpp"
#include "select/activation_default.hpp"
#include "select/select.hpp"
#include "splits.hpp"

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

struct Question {
  MoeProblem problem;
  std::optional<Splits> splits;  // of the whole model, where it is known
  std::string unprepared;        // why nothing of the model can be prepared
};

Result<Question> question_of(const Options& options) {
  const std::optional<DType> asked = layer_dtype(options.activation_dtype);
  Question out;
  if (!options.problem.name.empty()) {
    FEWBIT_TRY(out.problem, named_problem(options.problem, asked.value_or(DType::bf16)));
    return out;
  }
  if (is_prepared(options.path)) {
    FEWBIT_TRY(out.problem, prepared_problem(options.path, options.layer, asked));
    return out;
  }
  FEWBIT_TRY(const Checkpoint checkpoint, Checkpoint::open(options.path));
  FEWBIT_TRY(const Identified identified, identify(checkpoint));
  FEWBIT_TRY(const ModelConfig config, layer_config(checkpoint, identified));
  FEWBIT_TRY(const Engine engine, options.spread.engine_asked());
  const DType dtype = asked.value_or(default_activation_dtype(engine, config.dtype));
  out.unprepared = why_model_unprepared(checkpoint, engine);
  out.splits = plan_splits(checkpoint, identified);
  if (options.layer >= 0) {
    FEWBIT_TRY(out.problem,
               moe_layer_problem(checkpoint, identified, config, options.layer, dtype));
    return out;
  }
  const MoeLayers layers = moe_layer_problems(checkpoint, identified, config, dtype);
  FEWBIT_TRY(LayerProblem layer, first_moe_layer(checkpoint, layers, config));
  out.problem = std::move(layer.problem);
  return out;
}

// A forced backend that refuses is worth its own words; for the rest there is the table.
std::string way_out(const Error& error, const Selection& selection, bool convertible) {
  const std::string none = none_of_them_text(selection);
  // The table has the rest of it.
  if (!error.what.starts_with(none)) return "error: " + printable_message(error.message()) + "\n";
  if (selection.engine != Engine::fewbit) {
    return fmt::format("error: {} as it is; its others are not known here\n", none);
  }
  if (!convertible) return "error: " + none + "\n";
  return "error: " + none + "; `fewbit convert DIR -o OUT --to bf16` writes weights that one can\n";
}

struct Answer {
  MoeProblem whole;
  std::optional<Splits> splits;
  Parallel parallel;
  MoeProblem share;  // of the first rank
  RankShares shares;
  DeviceInfo device;
  Engine engine = Engine::fewbit;
  Selection selection;
  std::optional<Error> error;  // nothing was chosen
};

Result<Answer> answer(const Options& options) {
  Answer out;
  FEWBIT_TRY(Question question, question_of(options));
  out.whole = std::move(question.problem);
  out.splits = std::move(question.splits);
  FEWBIT_TRY(out.device, describe_device(options.device.text));
  FEWBIT_TRY(out.engine, options.spread.engine_asked());
  FEWBIT_TRY(out.parallel, options.spread.parallel());
  const Dealing dealing = dealing_of(out.engine, out.whole);
  const auto possible = rank_problem(out.whole, out.parallel, dealing);
  if (!possible) return ranks_by_option(possible.error());
  FEWBIT_TRY(out.selection, examine_spread(out.whole, out.parallel, out.device, out.engine));
  const auto choice =
      select_spread(out.whole, out.parallel, out.device, {options.backend, out.engine});
  if (choice) {
    out.selection = *choice;
  } else {
    out.error = choice.error();
    if (out.error->where == "backend") out.error->where = "--backend";
  }
  const Backend* chosen = find_backend(out.selection.chosen);
  const std::int64_t unit =
      chosen == nullptr ? 0 : spread_of(*chosen, out.whole, out.device, out.parallel).unit;
  FEWBIT_TRY(out.share, rank_problem(out.whole, out.parallel, dealing, unit));
  FEWBIT_TRY(out.shares, rank_shares(out.whole, out.parallel, dealing, unit));
  add_unprepared(question.unprepared, out.selection);
  return out;
}

// "160 on 3 ranks, 144 on 2"
std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::size_t i = 0; i < sizes.size();) {
    std::size_t end = i;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    text += fmt::format("{}{} on {}", i == 0 ? "" : ", ", sizes[i],
                        i == 0 ? counted(end - i, "rank") : std::to_string(end - i));
    i = end;
  }
  return text;
}

std::string shares_text(const Answer& a) {
  if (a.parallel.tensor == 1 && a.parallel.expert == 1) return "";
  const RankShares& shares = a.shares;
  const bool padded = shares.features.back() < shares.intermediate_size.back();
  return fmt::format("shares   intermediate {}{}; experts {}\n",
                     sizes_text(shares.intermediate_size),
                     padded ? fmt::format(", the last padded from {}", shares.features.back()) : "",
                     sizes_text(shares.num_experts));
}

Json shares_json(const RankShares& shares) {
  const auto list = [](const std::vector<std::int64_t>& sizes) {
    Json out{Json::Array{}};
    for (const std::int64_t size : sizes) out.push_back(size);
    return out;
  };
  Json out;
  out.set("features", list(shares.features));
  out.set("intermediate_size", list(shares.intermediate_size));
  out.set("num_experts", list(shares.num_experts));
  return out;
}

Json answer_json(const Answer& a) {
  Json out = selection_json(a.selection);
  out.set("layer", a.whole.where);
  out.set("device", a.device.name);
  out.set("problem", problem_json(a.share));
  out.set("shares", shares_json(a.shares));
  out.set("splits", splits_by_backend_json(a.whole, a.device, a.engine));
  if (a.splits) out.set("model_splits", splits_json(*a.splits));
  if (a.error) out.set("error", error_json(*a.error));
  return out;
}

Result<int> run_explain(const Options& options) {
  if (options.path.empty() == options.problem.name.empty()) {
    constexpr const char* what = "expected either DIR or --problem";
    print_usage_error(what, options.json);
    print_err("error: explain: {}\n", what);
    return exit_usage;
  }
  FEWBIT_TRY(const Answer a, answer(options));
  if (options.json) {
    print_json(answer_json(a));
  } else {
    if (!options.path.empty() && is_prepared(options.path)) {
      FEWBIT_TRY(const std::string line, prepared_line(options.path));
      print_out("{}\n\n", line);
    }
    print_out("{}", Lines{explain(a.share, a.device, a.selection)});
    print_out("{}", Lines{shares_text(a)});
    print_out("{}", Lines{splits_by_backend_text(a.whole, a.device, a.engine)});
    if (a.splits) {
      print_out("{}{}", Lines{split_line("TP", a.splits->tensor, a.parallel.tensor)},
                Lines{split_line("EP", a.splits->expert, a.parallel.expert)});
    }
  }
  std::fflush(stdout);
  if (a.error) {
    const bool convertible = !options.path.empty() && plain_would_run(a.share, a.device);
    print_err("{}", Lines{way_out(*a.error, a.selection, convertible)});
  }
  if (a.error && is_usage_error(*a.error)) return exit_usage;
  return a.error ? exit_failure : exit_fine;
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("explain", "Which backend runs an MoE layer, and why the others don't");
  command->add_option("DIR", options->path, "Checkpoint directory, index or file")
      ->check(not_empty);
  command->add_option("--layer", options->layer, "Layer (default: the first MoE layer)")
      ->check(whole_number(0, 1 << 20))
      ->default_str("");
  add_device_option(*command, options->device);
  add_spread_options(*command, options->spread);
  add_problem_options(*command, options->problem);
  add_any_backend_option(*command, options->backend);
  add_layer_dtype_option(*command, options->activation_dtype);
  add_json_option(*command, *options);
  command->footer(
      "Examples:\n  fewbit explain models/tiny-moe\n"
      "  fewbit explain DIR --device cpu:avx2 --json\n"
      "  fewbit explain DIR --engine vllm --device sm_90 --tp 4\n"
      "  fewbit explain --problem gpt-oss-20b/mxfp4 --engine vllm --device sm_120\n"
      "A backend of another engine is forced with --engine and --backend together, to see what it\n"
      "would refuse; FEWBIT_BACKEND forces only what runs here. --tp and --ep take what `fewbit "
      "check`\ncalls legal for the experts; other engines take even shares only, but for gpt-oss's "
      "MXFP4.\n\n" +
      problem_names_text());
  set_body(*command, *options, exit_code, [options] { return run_explain(*options); });
}

}  // namespace fewbit::cli
