// SPDX-License-Identifier: Apache-2.0
// fewbit bench [SHAPE…]: this machine's limits, and layers of named shapes against them.
#include <fmt/format.h>

#include <memory>

#include "bench/measure.hpp"
#include "bench_page.hpp"
#include "bench_shapes.hpp"
#include "command.hpp"
#include "core/environment.hpp"
#include "progress.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> names;
  std::string file;
  std::string activation_dtype = "bf16";
  std::string device = "cpu";
  bool list = false;
  std::string other;
  bench::LayerBenchOptions layer;
};

// Where the error of a name that the command line gave stands.
constexpr const char* unknown_shape = "bench SHAPE";

Result<std::vector<bench::LayerShape>> chosen_shapes(const Options& options) {
  FEWBIT_TRY(const std::vector<bench::LayerShape> all,
             options.file.empty() ? bench::parse_shapes(bench_shapes, "built-in shapes")
                                  : bench::read_shapes(options.file));
  if (options.list) return all;
  std::vector<std::string> names = options.names;
  if (names.empty()) {
    if (!options.file.empty()) return all;
    names = {"tiny-moe", "Qwen3-30B-A3B"};
  }
  std::vector<bench::LayerShape> out;
  for (const std::string& name : names) {
    const auto shape = bench::find_shape(all, name);
    if (!shape) return Error{shape.error().code, shape.error().what, unknown_shape};
    out.push_back(*shape);
  }
  return out;
}

void list_shapes(const Options& options, const std::vector<bench::LayerShape>& shapes) {
  if (!options.json) {
    print_out("{}\n", Lines{bench::names_of(shapes)});
    return;
  }
  Json names{Json::Array{}};
  for (const bench::LayerShape& shape : shapes) names.push_back(shape.name);
  print_json(names);
}

// Layer by layer, until all are measured or a signal says stop.
class Run {
 public:
  Run(const Options& options, OtherRun other) : options_(options), other_(std::move(other)) {}

  Result<int> measure(const std::vector<bench::LayerShape>& shapes, const DeviceInfo& device,
                      Executor& executor) {
    std::size_t done = 0;
    if (options_.layer.router) json_.set("router", true);
    for (const bench::LayerShape& shape : shapes) {
      FEWBIT_TRY(const bench::LayerBench layer,
                 bench::bench_layer(shape, device, options_.layer, executor));
      done += layer.timings.size();
      if (!layer.timings.empty()) show(layer);
      if (was_interrupted()) return stopped(done, shapes.size() * options_.layer.tokens.size());
    }
    if (options_.json) print_json(json_);
    return exit_fine;
  }

 private:
  void show(const bench::LayerBench& layer) {
    if (options_.json) {
      layers_.push_back(layer_json(layer, other_));
      json_.set("layers", layers_);
      return;
    }
    print_out("{}", Lines{bench::bench_text(layer)});
    if (!options_.other.empty()) {
      print_out("  against {}\n{}", options_.other, Lines{comparison_text(layer, other_)});
    }
    std::fflush(stdout);
  }

  // What was measured is printed; the error stands beside it.
  int stopped(std::size_t done, std::size_t all) {
    const Error error = told_by_signal(
        {ErrorCode::cancelled, fmt::format("stopped after {} of {} rows", done, all), "bench"});
    if (options_.json) {
      json_.set("layers", layers_);
      json_.set("error", error_json(error));
      print_json(json_);
    }
    print_error(error, false);
    return exit_stopped;
  }

  const Options& options_;
  OtherRun other_;
  Json layers_{Json::Array{}};
  Json json_;
};

Result<int> run_bench(Options& options) {
  const auto chosen = chosen_shapes(options);
  const bool unknown = !chosen && chosen.error().where == unknown_shape;
  if (unknown) return usage_error(chosen.error(), options.json);
  FEWBIT_TRY(const std::vector<bench::LayerShape> shapes, chosen);
  if (options.list) {
    list_shapes(options, shapes);
    return exit_fine;
  }
  OtherRun other;
  if (!options.other.empty()) {
    FEWBIT_TRY(other, read_other_run(options.other));
  }
  FEWBIT_TRY(options.layer.activation_dtype, parse_activation_dtype(options.activation_dtype));
  // Here it is asked of dense layers too.
  if (options.layer.backend.empty()) options.layer.backend = environment().backend.value_or("");
  FEWBIT_TRY(const DeviceInfo device, describe_device(options.device));
  FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(options.threads));
  catch_interrupts();
  options.layer.stop = was_interrupted;
  return Run(options, std::move(other)).measure(shapes, device, *pool);
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "bench", "MoE and dense layers of named shapes against this machine's limits");
  command->add_option("SHAPE", options->names,
                      "Named shapes (default: tiny-moe Qwen3-30B-A3B; of a file all)");
  command->add_flag("--list", options->list, "Names of the shapes");
  command->add_option("--shapes", options->file,
                      "File of shapes, as tests/problems/models.txt (see explain --problems) or "
                      "linear_layers.txt");
  command->add_option("--tokens", options->layer.tokens, "Numbers of tokens, as 1,16,512")
      ->delimiter(',')
      ->check(whole_number(1, std::int64_t{1} << 20));
  command->add_option("--seconds", options->layer.seconds, "Measured time of each number of tokens")
      ->check(number_between(0.01, 3600));
  command
      ->add_option(
          "--compare", options->other,
          "Output of `fewbit bench --json` of another run: how many times as fast each row "
          "is here")
      ->check(not_empty);
  command->add_flag("--router", options->layer.router,
                    "With --device cuda: calls begin with logits, and the time is with the "
                    "layer's router (softmax)");
  add_backend_option(*command, options->layer.backend);
  add_activation_dtype_option(*command, options->activation_dtype);
  add_run_device_option(*command, options->device, "What runs the layers");
  add_threads_option(*command, *options);
  add_json_option(*command, *options);
  command->footer(
      "Weights are random and larger than the caches; read bandwidth and multiply-add peak are\n"
      "measured before, between and after, and a note says when they were disturbed. With\n"
      "--device cuda the limit is what a copy on the card moves; arguments of MoE layers are on "
      "it,\n"
      "and a graph holds a call on each copy, those of dense layers go there and back in each "
      "call.\n"
      "Ctrl-C ends it with what was measured so far.\n"
      "Examples:\n  fewbit bench\n  fewbit bench dense-14336x4096/mxfp4\n  fewbit bench "
      "gpt-oss-20b --tokens 1,64 --json > before.json\n"
      "  fewbit bench gpt-oss-20b --tokens 1,64 --compare before.json");
  set_body(*command, *options, exit_code, [options] { return run_bench(*options); });
}

}  // namespace fewbit::cli
