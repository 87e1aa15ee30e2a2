// SPDX-License-Identifier: Apache-2.0
// fewbit eval MODEL --text FILE: perplexity of a model on a text.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "command.hpp"
#include "core/counted.hpp"
#include "model_options.hpp"
#include "progress.hpp"

namespace fewbit::cli {
namespace {

struct Options : ModelCommandOptions {
  std::string text;
  std::int64_t window = 512;
};

struct Measured {
  Evaluation evaluation;
  double seconds = 0;
};

// An error of the text is worth nothing without its file.
Error at(const std::string& file, const Error& error) {
  return {error.code, error.what, error.where.empty() ? file : error.where};
}

Result<Measured> evaluate_file(const Options& options, const LoadedModel& loaded) {
  const std::int64_t context = loaded.model.config().max_positions;
  if (options.window > context) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} tokens, but the model's context has {}", options.window, context),
                 "--window"};
  }
  FEWBIT_TRY(const std::string text, read_text_file(options.text));
  const Result<std::vector<std::int32_t>> ids = loaded.tokenizer.encode(text);
  if (!ids) return at(options.text, ids.error());
  const auto start = std::chrono::steady_clock::now();
  ProgressBar bar("scoring", Unit::tokens);
  const Result<Evaluation> evaluation =
      evaluate(loaded.model, *ids, options.window, bar.callback());
  if (!evaluation) return at(options.text, evaluation.error());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return Measured{*evaluation, seconds.count()};
}

Result<int> run_eval(const Options& options) {
  FEWBIT_TRY(const LoadedModel loaded, load_model(options, options.window));
  FEWBIT_TRY(const Measured measured, evaluate_file(options, loaded));
  const Evaluation& e = measured.evaluation;
  const double rate = static_cast<double>(e.tokens_scored) / measured.seconds;
  if (options.json) {
    Json out = model_json(options, loaded.model);
    out.set("text", options.text);
    out.set("window", options.window);
    out.set("windows", e.windows);
    out.set("tokens_scored", e.tokens_scored);
    out.set("mean_nll", e.mean_nll);
    out.set("perplexity", e.perplexity);
    out.set("tokens_per_second", rate);
    out.set("peak_rss_bytes", peak_rss_bytes());
    print_json(out);
  } else {
    print_out("perplexity {:.3f}  (mean negative log likelihood {:.5f} over {}, {} of {})\n",
              e.perplexity, e.mean_nll, counted(e.tokens_scored, "token"),
              counted(e.windows, "window"), options.window);
    print_out("{:.0f} tokens/s, {}\n", rate, model_line(options, loaded.model));
  }
  return exit_fine;
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("eval", "Perplexity of a model on a text");
  add_model_options(*command, *options);
  command->add_option("--text", options->text, "File with the text, UTF-8 (not the text itself)")
      ->required()
      ->check(not_empty);
  command->add_option("--window", options->window, "Input tokens of a window")
      ->check(whole_number(1, std::int64_t{1} << 20));
  command->footer(
      "The text is encoded whole and cut into windows; position i of a window scores token i + 1.\n"
      "What `fewbit check` warns of in the model's weights and configs is said on stderr.\n"
      "Examples:\n  fewbit eval models/tiny-moe --text models/tiny-moe/val.txt\n"
      "  fewbit eval DIR --text val.txt --activation-dtype f32 --json");
  set_body(*command, *options, exit_code, [options] { return run_eval(*options); });
}

}  // namespace fewbit::cli
