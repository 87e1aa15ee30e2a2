// SPDX-License-Identifier: Apache-2.0
#include "problem_options.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "named_problems.hpp"

namespace fewbit::cli {
namespace {

std::string check_device(const std::string& text) {
  if (text == "cuda") return "";  // whether there is one, is no matter of usage
  const auto device = describe_device(text);
  return device ? "" : device.error().message();
}

std::string check_engine(const std::string& text) {
  const auto engine = engine_from_name(text);
  return engine ? "" : engine.error().message();
}

std::string check_exchange(const std::string& text) {
  const auto exchange = exchange_from_name(text);
  return exchange ? "" : exchange.error().message();
}

Json scheme_json(const Scheme& scheme) {
  Json out;
  out.set("text", scheme_text(scheme));
  out.set("producer", producer_name(scheme.producer));
  out.set("weight", std::string(dtype_name(scheme.weight)));
  if (scheme.scale) {
    out.set("scale", std::string(dtype_name(scheme.scale->dtype)));
    out.set("group_rows", scheme.scale->granularity.rows);
    out.set("group_columns", scheme.scale->granularity.cols);
  }
  out.set("zero_points", scheme.zero_points);
  if (scheme.activation) out.set("activation", std::string(dtype_name(*scheme.activation)));
  return out;
}

}  // namespace

void add_device_option(CLI::App& command, DeviceOption& option) {
  command
      .add_option(
          "--device", option.text,
          "cpu (this machine), cuda (its first CUDA device), cpu:generic|neon|avx2|avx512|amx, "
          "sm_75|80|86|87|89|90|100|103|120|121 (sm_120:cuda12.8 with a CUDA version), xpu")
      ->check(CLI::Validator(check_device, "DEVICE"));
}

Result<Parallel> SpreadOptions::parallel() const {
  Parallel parallel{.tensor = tensor, .expert = expert};
  FEWBIT_TRY(parallel.exchange, exchange_from_name(exchange));
  return parallel;
}

void add_exchange_option(CLI::App& command, std::string& exchange) {
  command
      .add_option("--exchange", exchange,
                  "How tokens reach their experts' ranks: none, allgather, deepep_high_throughput, "
                  "deepep_low_latency, nixl, flashinfer_one_sided, flashinfer_two_sided")
      ->check(CLI::Validator(check_exchange, "EXCHANGE"));
}

void add_spread_options(CLI::App& command, SpreadOptions& options) {
  command
      .add_option("--engine", options.engine,
                  "Whose backends: fewbit, vllm, sglang, flashinfer (only fewbit's run here)")
      ->check(CLI::Validator(check_engine, "ENGINE"));
  command.add_option("--tp", options.tensor, "Ranks that share every expert")
      ->check(whole_number(1, 1 << 16));
  command.add_option("--ep", options.expert, "Ranks that hold different experts")
      ->check(whole_number(1, 1 << 16));
  add_exchange_option(command, options.exchange);
}

Error ranks_by_option(const Error& error) {
  if (error.code != ErrorCode::invalid_argument) return error;
  constexpr std::string_view of_rank = " rank";
  constexpr std::pair<std::string_view, const char*> options[] = {
      {" tensor_ranks", "--tp"}, {" expert_ranks", "--ep"}, {of_rank, "--rank"}};
  for (const auto& [field, option] : options) {
    if (!error.where.ends_with(field)) continue;
    const std::string layer = error.where.substr(0, error.where.size() - field.size());
    // Which ranks there are is the same for every layer.
    return Error{error.code, field == of_rank ? error.what : layer + ": " + error.what, option};
  }
  return error;
}

void add_any_backend_option(CLI::App& command, std::string& name) {
  std::vector<std::string> names =
      backend_names({Engine::fewbit, Engine::vllm, Engine::sglang, Engine::flashinfer});
  command
      .add_option("--backend", name,
                  "Force the experts' backend (`fewbit backends`, of other engines `fewbit "
                  "backends --foreign` lists them): used or refused")
      ->transform(backend_name(std::move(names)));
}

void add_problem_options(CLI::App& command, ProblemOptions& options) {
  command.add_option("--problem", options.name,
                     "A published layer instead of a checkpoint: Mixtral-8x7B/awq-int4-g128");
  command.add_option("--problems", options.file,
                     "File of such layers, as tests/problems/models.txt; alone: their names");
}

namespace {

// The tool's own list, or that of a file.
Result<std::vector<NamedProblem>> problems_of(const ProblemOptions& options) {
  if (options.file.empty()) return parse_problems(named_problems, "built-in problems");
  FEWBIT_TRY(const std::string text, read_text_file(options.file, largest_list));
  return parse_problems(text, options.file);
}

}  // namespace

Result<std::string> problem_names(const ProblemOptions& options) {
  constexpr std::string_view made_up = "odd-";
  FEWBIT_TRY(const std::vector<NamedProblem> problems, problems_of(options));
  std::string text = "Layers for --problem, MODEL/SCHEME (without SCHEME the first):";
  std::string last;
  for (const NamedProblem& problem : problems) {
    const std::string model = problem.name.substr(0, problem.name.find('/'));
    const std::string scheme = problem.name.substr(model.size() + 1);
    if (model.starts_with(made_up) && !last.starts_with(made_up)) {
      text += "\nMade-up layers, of sizes and kinds that few models have:";
    }
    text += model == last ? ", " + scheme : fmt::format("\n  {}: {}", model, scheme);
    last = model;
  }
  return text;
}

Result<MoeProblem> named_problem(const ProblemOptions& options, DType activation_dtype) {
  FEWBIT_TRY(const std::vector<NamedProblem> problems, problems_of(options));
  auto found = find_problem(problems, options.name);
  if (!found) return Error{found.error().code, found.error().what, "--problem"};
  MoeProblem problem = *std::move(found);
  problem.activation_dtype = activation_dtype;
  return problem;
}

Json problem_json(const MoeProblem& problem) {
  Json out;
  out.set("hidden_size", problem.hidden_size);
  out.set("intermediate_size", problem.intermediate_size);
  out.set("num_experts", problem.num_experts);
  out.set("top_k", problem.top_k);
  out.set("activation", activation_name(problem.activation.kind));
  out.set("activation_dtype", std::string(dtype_name(problem.activation_dtype)));
  out.set("routing", routing_name(problem.routing));
  out.set("biases", problem.biases);
  out.set("tensor_parallel", problem.parallel.tensor);
  out.set("expert_parallel", problem.parallel.expert);
  out.set("token_exchange", exchange_name(problem.parallel.exchange));
  out.set("gate_up", scheme_json(problem.gate_up));
  out.set("down", scheme_json(problem.down));
  return out;
}

}  // namespace fewbit::cli
