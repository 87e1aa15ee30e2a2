// SPDX-License-Identifier: Apache-2.0
// fewbit generate MODEL --prompt TEXT: writes on from a prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>

#include "command.hpp"
#include "core/counted.hpp"
#include "model_options.hpp"
#include "progress.hpp"

namespace fewbit::cli {
namespace {

struct Options : ModelCommandOptions {
  std::string prompt;
  GenerateOptions generate;
};

// Text as it comes, held back until a UTF-8 sequence is complete.
class StreamPrinter {
 public:
  // The prompt comes first, with the first token: nothing is printed of a refused request.
  StreamPrinter(const Tokenizer& tokenizer, std::string prompt)
      : tokenizer_(tokenizer), pending_(std::move(prompt)) {}

  bool print(std::int32_t id) {
    const auto bytes = tokenizer_.decode(std::span(&id, 1));
    if (!bytes) return false;
    pending_ += *bytes;
    const std::size_t whole = complete_prefix();
    show(std::string_view(pending_).substr(0, whole));
    std::fflush(stdout);
    pending_.erase(0, whole);
    return true;
  }
  void finish() const { show(pending_); }

 private:
  // A vocabulary must not steer the terminal; a pipe gets the bytes as they are.
  void show(std::string_view text) const {
    write_out(terminal_ ? printable(text) : std::string(text));
  }

  // Bytes before an unfinished sequence at the end.
  std::size_t complete_prefix() const {
    const std::size_t n = pending_.size();
    for (std::size_t back = 1; back <= 3 && back <= n; ++back) {
      const auto byte = static_cast<unsigned char>(pending_[n - back]);
      if ((byte & 0xC0U) == 0x80U) continue;
      const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
      return length > back ? n - back : n;
    }
    return n;
  }

  const Tokenizer& tokenizer_;
  std::string pending_;
  bool terminal_ = isatty(STDOUT_FILENO) == 1;
};

// A whole number of 64 bits; empty text: fine. CLI11 by itself wraps negative and larger ones.
std::string check_seed(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return "";
  return "'" + text + "' is no whole number from 0 to 2^64-1";
}
const CLI::Validator seed_number(check_seed, "UINT64");

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

Result<Json> generation_json(const Options& options, const LoadedModel& loaded,
                             const Generation& g) {
  FEWBIT_TRY(const std::string text, loaded.tokenizer.decode(g.ids));
  Json ids{Json::Array{}};
  for (const std::int32_t id : g.ids) ids.push_back(std::int64_t{id});
  const auto new_tokens = static_cast<std::int64_t>(g.ids.size()) - g.prompt_tokens;
  Json out = model_json(options, loaded.model);
  out.set("text", text);
  out.set("ids", ids);
  out.set("prompt_tokens", g.prompt_tokens);
  out.set("new_tokens", new_tokens);
  out.set("stopped_by_eos", g.stopped_by_eos);
  out.set("prefill_tokens_per_second", rate(g.prompt_tokens, g.prefill_seconds));
  out.set("decode_tokens_per_second", rate(new_tokens, g.decode_seconds));
  out.set("peak_rss_bytes", peak_rss_bytes());
  return out;
}

Result<int> run_generate(Options& options) {
  FEWBIT_TRY(const LoadedModel loaded, load_model(options, 512));
  const Result<std::vector<std::int32_t>> prompt = loaded.tokenizer.encode(options.prompt);
  if (!prompt) return Error{prompt.error().code, prompt.error().what, "--prompt"};
  StreamPrinter printer(loaded.tokenizer, options.prompt);
  if (!options.json) {
    options.generate.on_token = [&printer](std::int32_t id) {
      return printer.print(id) && !was_interrupted();
    };
  } else {
    options.generate.on_token = [](std::int32_t) { return !was_interrupted(); };
  }
  FEWBIT_TRY(const Generation g, generate(loaded.model, *prompt, options.generate));
  const auto new_tokens = static_cast<std::int64_t>(g.ids.size()) - g.prompt_tokens;
  if (was_interrupted()) {
    if (!options.json) {
      printer.finish();
      print_out("\n");
    }
    return Error{
        ErrorCode::cancelled,
        fmt::format("stopped after {} of {} tokens", new_tokens, options.generate.max_new_tokens),
        options.path};
  }
  if (options.json) {
    FEWBIT_TRY(const Json out, generation_json(options, loaded, g));
    print_json(out);
    return exit_fine;
  }
  printer.finish();
  print_out("\n");
  std::fflush(stdout);
  if (new_tokens < options.generate.max_new_tokens && !g.stopped_by_eos) {
    print_err("stopped: the context of {} tokens is full\n", loaded.model.config().max_positions);
  }
  print_err("{} at {:.0f} tokens/s (prompt {} at {:.0f} tokens/s), {}\n",
            counted(new_tokens, "token"), rate(new_tokens, g.decode_seconds), g.prompt_tokens,
            rate(g.prompt_tokens, g.prefill_seconds), model_line(options, loaded.model));
  return exit_fine;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("generate", "Text from a prompt");
  add_model_options(*command, *options);
  SamplingParams& sampling = options->generate.sampling;
  command->add_option("--prompt", options->prompt, "Text to go on from")
      ->required()
      ->check(not_empty);
  command->add_option("--max-tokens", options->generate.max_new_tokens, "Most new tokens")
      ->check(whole_number(1, std::int64_t{1} << 30));
  command->add_option("--temperature", sampling.temperature, "0 (default): always the likeliest")
      ->check(number_between(0, std::numeric_limits<float>::max()));
  command->add_option("--top-k", sampling.top_k, "Draw from the k likeliest; 0: all")
      ->check(whole_number(0, 1 << 30));
  command->add_option("--top-p", sampling.top_p, "Draw from the likeliest with this share; 1: all")
      ->check(number_between(1e-6, 1));
  command->add_option("--seed", sampling.seed, "Same seed, same text: 0 to 2^64-1")
      ->check(seed_number);
  command->footer(
      "Text goes to stdout, figures to stderr, and what `fewbit check` warns of in the model.\n"
      "Examples:\n  fewbit generate models/tiny-moe --prompt \"So she was considering\"\n"
      "  fewbit generate DIR --prompt Once --temperature 0.8 --top-p 0.95 --seed 7");
  set_body(*command, *options, exit_code, [options] { return run_generate(*options); });
}

}  // namespace fewbit::cli
