// SPDX-License-Identifier: Apache-2.0
// fewbit bench [SHAPE…]: this machine's limits, and MoE layers of named shapes against them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/measure.hpp"
#include "bench_shapes.hpp"
#include "command.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::vector<std::string> names;
  std::string file;
  std::string activation_dtype = "bf16";
  bool list = false;
  bench::LayerBenchOptions layer;
};

// Where the error of a name that the command line gave stands.
constexpr const char* unknown_shape = "bench SHAPE";

std::string known_names(const std::vector<bench::LayerShape>& shapes) {
  std::string text;
  for (const bench::LayerShape& shape : shapes) text += (text.empty() ? "" : ", ") + shape.name;
  return text;
}

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
    const auto it = std::find_if(
        all.begin(), all.end(), [&](const bench::LayerShape& shape) { return shape.name == name; });
    if (it == all.end()) {
      return Error{ErrorCode::invalid_argument,
                   "no shape '" + name + "'; known: " + known_names(all), unknown_shape};
    }
    out.push_back(*it);
  }
  return out;
}

Json bench_json(const bench::LayerBench& result) {
  Json timings{Json::Array{}};
  for (const bench::LayerTiming& t : result.timings) {
    Json entry;
    entry.set("tokens", t.tokens);
    entry.set("seconds", t.seconds);
    entry.set("calls", t.calls);
    entry.set("bytes_per_second", t.bytes_per_second());
    entry.set("flops_per_second", t.flops_per_second());
    entry.set("fraction_of_read", t.bytes_per_second() / result.limits.read_bytes_per_second);
    entry.set("fraction_of_fma", t.flops_per_second() / result.limits.fma_flops_per_second);
    timings.push_back(entry);
  }
  Json out;
  out.set("shape", result.shape.name);
  out.set("scheme", result.shape.scheme);
  out.set("backend", result.backend);
  out.set("layout", result.prepared.layout);
  out.set("threads", result.limits.threads);
  out.set("read_bytes_per_second", result.limits.read_bytes_per_second);
  out.set("fma_flops_per_second", result.limits.fma_flops_per_second);
  out.set("prepare_seconds", result.prepare_seconds);
  out.set("prepared_bytes", result.prepared.owned_bytes);
  out.set("timings", timings);
  return out;
}

void list_shapes(const Options& options, const std::vector<bench::LayerShape>& shapes) {
  if (!options.json) {
    print_out("{}\n", Lines{known_names(shapes)});
    return;
  }
  Json names{Json::Array{}};
  for (const bench::LayerShape& shape : shapes) names.push_back(shape.name);
  print_json(names);
}

Result<int> run_bench(Options& options) {
  const auto chosen = chosen_shapes(options);
  const bool unknown = !chosen && chosen.error().where == unknown_shape;
  if (unknown) return usage_error(chosen.error(), options.json);
  FEWBIT_TRY(const std::vector<bench::LayerShape> shapes, chosen);
  if (options.list) {
    list_shapes(options, shapes);
    return exit_fine;
  }
  FEWBIT_TRY(options.layer.activation_dtype, parse_activation_dtype(options.activation_dtype));
  FEWBIT_TRY(const DeviceInfo device, detect_cpu());
  FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(options.threads));
  Json results{Json::Array{}};
  for (const bench::LayerShape& shape : shapes) {
    FEWBIT_TRY(const bench::LayerBench result,
               bench::bench_layer(shape, device, options.layer, *pool));
    if (options.json) {
      results.push_back(bench_json(result));
    } else {
      print_out("{}", Lines{bench::bench_text(result)});
      std::fflush(stdout);
    }
  }
  if (options.json) print_json(results);
  return exit_fine;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("bench", "MoE layers of named shapes against this machine's limits");
  command->add_option("SHAPE", options->names,
                      "Named shapes (default: tiny-moe Qwen3-30B-A3B; of a file all)");
  command->add_flag("--list", options->list, "Names of the shapes");
  command->add_option("--shapes", options->file,
                      "File of shapes, as tests/problems/models.txt (see explain --problems)");
  command->add_option("--tokens", options->layer.tokens, "Numbers of tokens, as 1,16,512")
      ->delimiter(',')
      ->check(whole_number(1, std::int64_t{1} << 20));
  command->add_option("--seconds", options->layer.seconds, "Measured time of each number of tokens")
      ->check(number_between(0.01, 3600));
  add_backend_option(*command, options->layer.backend);
  add_activation_dtype_option(*command, options->activation_dtype);
  add_threads_option(*command, *options);
  add_json_option(*command, *options);
  command->footer(
      "Weights are random and larger than the caches; read bandwidth and multiply-add peak are "
      "measured in the same run.\n"
      "Examples:\n  fewbit bench\n  fewbit bench gpt-oss-20b --tokens 1,64 --json");
  set_body(*command, *options, exit_code, [options] { return run_bench(*options); });
}

}  // namespace fewbit::cli
