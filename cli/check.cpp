// SPDX-License-Identifier: Apache-2.0
// fewbit check DIR: one page: what each tensor is, whether the parts fit together, what can run it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "command.hpp"
#include "core/counted.hpp"
#include "findings_page.hpp"
#include "inventory.hpp"
#include "memory_plan.hpp"
#include "model/families/family.hpp"
#include "prepared_page.hpp"
#include "problem_options.hpp"
#include "progress.hpp"
#include "run_verdict.hpp"
#include "scheme/identify_depth.hpp"
#include "scheme/model_json.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/validation.hpp"
#include "select/activation_default.hpp"
#include "select/layer_problem.hpp"
#include "splits.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::string source;
  DeviceOption device;
  bool headers_only = false;
  bool weights = false;

  Depth depth() const {
    if (headers_only) return Depth::headers;
    return weights ? Depth::weights : Depth::scales;
  }
};

struct Report {
  std::string path;  // as it was given
  Checkpoint checkpoint;
  Identified identified;
  std::vector<Finding> findings;
  Inventory inventory;
  std::optional<ModelConfig> config;
  std::string config_error;
  std::string device = "cpu";
  MoeLayers moe_layers;
  std::optional<LayerProblem> layer;  // of the first MoE layer
  std::optional<Selection> selection;
  std::vector<Selection> engines;  // what other engines would choose
  std::string layer_error;
  std::optional<Error> environment_error;
  std::optional<MemoryPlan> memory;
  Splits splits;
};

void add_findings(std::vector<Finding>& all, std::span<const Finding> more) {
  all.insert(all.end(), more.begin(), more.end());
}

// What fewbit can't run is no fault of the checkpoint.
void add_not_runnable(Report& report, const Error& error) {
  report.config_error = error.message();
  report.findings.push_back({Level::info, "model-not-runnable", error.where, error.what, ""});
}

// What `convert` made of a GGUF file: its tensors, which no config goes with.
bool has_gguf_names(const Report& report) {
  return std::ranges::any_of(report.checkpoint.tensors(), [](const TensorInfo& tensor) {
    return tensor.name.starts_with("blk.");
  });
}

void add_config_error(Report& report, const Error& error) {
  if (error.code == ErrorCode::unsupported) return add_not_runnable(report, error);
  report.config_error = error.message();
  // Without a config it may be no language model at all; a GGUF file never has one, Mistral's own
  // releases have params.json in its place, adapters adapter_config.json.
  const auto model = read_model_json(report.checkpoint);
  const bool native = model && model->root != nullptr && model->name != "config.json";
  const bool missing = error.code == ErrorCode::not_found;
  const bool usual = report.checkpoint.gguf_metadata() != nullptr || native ||
                     (missing && (is_adapter(report.checkpoint) || has_gguf_names(report)));
  const Level level = usual ? Level::info : missing ? Level::warning : Level::error;
  report.findings.push_back({level, "config-unreadable", error.where,
                             missing ? "no config.json" : error.what,
                             "a config that describes the model"});
}

// Of one shard alone, the rest of the layer may be in another.
void add_layer_error(Report& report, const Error& error) {
  report.layer_error = error.message();
  // What fewbit does not run is no fault, and of a family that it doesn't know nothing need be.
  const bool sure =
      report.config && !is_part_of_model(report.checkpoint) && error.code != ErrorCode::unsupported;
  const Level level = sure ? Level::error : Level::info;
  report.findings.push_back(
      {level, "layer-not-runnable", error.where, error.what, "experts that can be run"});
}

std::string machine_name(const Report& report) {
  return report.device == "cpu" ? "this machine" : report.device;
}

// A forced backend that refuses is told apart: others could.
void add_no_backend(Report& report, const DeviceInfo& device, const Error& error) {
  const auto& candidates = report.selection->candidates;
  const bool forced = std::any_of(candidates.begin(), candidates.end(),
                                  [](const Candidate& c) { return c.refusals.empty(); });
  report.layer_error = forced ? error.message() : "no backend can run the experts";
  if (forced) {
    report.findings.push_back(forced_refusal(error.what));
    return;
  }
  report.findings.push_back(
      {Level::info, "layer-not-runnable", "experts",
       fmt::format("no backend for them on {}: see the table below", machine_name(report)),
       plain_would_run(report.layer->problem, device)
           ? "one; `fewbit convert` writes weights that every backend runs"
           : "one that can run them"});
}

void describe_config(Report& report) {
  auto config = read_model_config(report.checkpoint);
  if (!config) return add_config_error(report, config.error());
  report.config = *std::move(config);
  const auto family =
      find_family(*report.config, (report.checkpoint.directory() / "config.json").string());
  if (!family) add_not_runnable(report, family.error());
}

bool has_experts(const Identified& identified) {
  return std::ranges::any_of(identified.modules, [](const Module& m) { return m.expert != -1; });
}

// What can run the experts; a checkpoint that can't be run is still worth a page.
void describe_layer(Report& report) {
  if (!report.config && !has_experts(report.identified)) return;
  const auto config = layer_config(report.checkpoint, report.identified);
  if (!config) {  // the model's own config has a finding
    report.layer_error = config.error().message();
    return;
  }
  report.moe_layers =
      moe_layer_problems(report.checkpoint, report.identified, *config, DType::bf16);
  auto layer = first_moe_layer(report.checkpoint, report.moe_layers, *config);
  if (!layer) return add_layer_error(report, layer.error());
  const auto device = describe_device(report.device);
  if (!device) return add_layer_error(report, device.error());
  const auto decide = [&](Engine engine) {
    MoeProblem whole = layer->problem;
    whole.activation_dtype = default_activation_dtype(engine, config->dtype);
    return decide_layer_of(report.checkpoint, report.identified, whole, {}, *device,
                           {.backend = "", .engine = engine});
  };
  for (const Engine engine : {Engine::vllm, Engine::sglang, Engine::flashinfer}) {
    auto other = decide(engine);
    if (other) report.engines.push_back(std::move(other->selection));
  }
  auto decision = decide(Engine::fewbit);
  if (!decision) return add_layer_error(report, decision.error());
  report.layer = *std::move(layer);
  report.selection = std::move(decision->selection);
  if (!decision->refused) return;
  if (is_usage_error(*decision->refused)) report.environment_error = decision->refused;
  add_no_backend(report, *device, *decision->refused);
}

void describe_tokenizer(Report& report) {
  const std::filesystem::path file = report.checkpoint.directory() / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, ignored))) {
    if (report.checkpoint.gguf_metadata() == nullptr && report.config) {
      report.findings.push_back({Level::info, "tokenizer-missing", file.string(),
                                 "no tokenizer.json, so no text can be evaluated or generated",
                                 ""});
    }
    return;
  }
  const auto tokenizer = Tokenizer::open(file);
  if (!tokenizer) {
    const Error& error = tokenizer.error();
    std::erase_if(report.findings, [&](const Finding& finding) {
      return finding.rule == "lfs-pointer" && finding.where == file.string();
    });
    report.findings.push_back({Level::error, "tokenizer-unreadable", error.where, error.what, ""});
  } else if (report.config && tokenizer->vocab_size() > report.config->vocab_size) {
    report.findings.push_back(
        {Level::error, "tokenizer-vocabulary", file.string(),
         fmt::format("ids up to {}", tokenizer->vocab_size() - 1),
         fmt::format("less than vocab_size {} of config.json", report.config->vocab_size)});
  }
}

void describe_memory(Report& report) {
  const auto device = detect_cpu();
  if (!device) return;
  report.memory = plan_memory(report.checkpoint, report.identified, report.moe_layers, *device);
}

bool is_runnable(const Report& report) {
  return report.checkpoint.gguf_metadata() == nullptr && report.config.has_value() &&
         report.config_error.empty() && report.layer_error.empty() &&
         std::none_of(report.findings.begin(), report.findings.end(),
                      [](const Finding& f) { return f.level == Level::error; });
}

RunVerdict run_verdict(const Report& report) {
  RunVerdict verdict;
  verdict.part = is_part_of_model(report.checkpoint);
  verdict.machine = machine_name(report);
  if (report.selection) set_backend(*report.selection, verdict);
  const bool no_text = std::ranges::any_of(
      report.findings, [](const Finding& f) { return f.rule == "tokenizer-missing"; });
  verdict.whole_model = is_runnable(report) && !no_text && !verdict.backend.empty();
  for (const Selection& selection : report.engines) {
    if (selection.chosen.empty()) continue;
    verdict.engines.push_back({engine_name(selection.engine), selection.chosen});
  }
  return verdict;
}

// Scales of a large checkpoint take a while.
Result<std::vector<Finding>> validate_visibly(const Report& report, const Options& options) {
  ProgressBar bar("checking", Unit::modules);
  std::vector<Finding> found =
      validate(report.checkpoint, report.identified, options.depth(), bar.callback());
  if (was_interrupted()) return bar.stopped(options.path);
  return found;
}

Result<Report> make_report(const Options& options) {
  FEWBIT_TRY(Checkpoint checkpoint, open_checkpoint(options.path));
  FEWBIT_TRY(Identified identified, identify(checkpoint, options.depth()));
  Report report{
      options.path, checkpoint, std::move(identified), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
      {},           {}};
  report.device = options.device.text;
  add_findings(report.findings, checkpoint.findings());
  add_findings(report.findings, report.identified.findings);
  FEWBIT_TRY(const std::vector<Finding> found, validate_visibly(report, options));
  add_findings(report.findings, found);
  report.inventory = take_inventory(checkpoint, report.identified);
  describe_config(report);
  describe_layer(report);
  describe_tokenizer(report);
  describe_memory(report);
  report.splits = plan_splits(checkpoint, report.identified);
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.level > b.level; });
  return report;
}

void print_head(const Report& report) {
  const Checkpoint& c = report.checkpoint;
  Table table({Align::left, Align::left});
  table.add({"checkpoint",
             fmt::format("{}  ({}, {}, {})", report.path, counted(c.shards().size(), "file"),
                         counted(c.tensors().size(), "tensor"), bytes_text(c.total_bytes()))});
  table.add({"producer", producer_name(report.identified.producer)});
  table.add({"evidence", report.identified.producer_evidence});
  if (report.config) {
    const ModelConfig& m = *report.config;
    table.add({"model", fmt::format("{}: {}, hidden {}, vocabulary {}, context {}", m.model_type,
                                    counted(m.num_layers, "layer"), m.hidden_size, m.vocab_size,
                                    m.max_positions)});
    if (m.num_experts > 0) {
      table.add({"experts", fmt::format("{} of intermediate {}, {} a token", m.num_experts,
                                        m.moe_intermediate_size, m.router.top_k)});
    }
  }
  if (!report.config_error.empty()) table.add({"not runnable", report.config_error});
  print_out("{}\n", Lines{table.text(0)});
}

void print_layer(const Report& report) {
  if (!report.layer_error.empty()) {
    print_out("experts can't run here: {}\n", report.layer_error);
  }
  if (!report.selection) return;
  const LayerProblem& layer = *report.layer;
  print_out("experts on {}: {} of {} MoE layers like {}\n", machine_name(report),
            layer.similar_layers, layer.moe_layers, layer.problem.where);
  for (const Candidate& candidate : report.selection->candidates) {
    const std::string verdict = candidate_text(candidate, *report.selection);
    print_out("  {:<12} {}\n", candidate.backend, Lines{verdict});
  }
  print_out("{}", Lines{engines_lines(report.engines)});
}

void print_plans(const Report& report) {
  if (report.memory) {
    print_out("memory: {}{}\n\n", memory_text(*report.memory), unprepared_text(report.selection));
  }
  print_out("{}", Lines{splits_text(report.splits)});
}

Json report_json(const Report& report) {
  Json out;
  out.set("path", report.path);
  out.set("shards", static_cast<std::uint64_t>(report.checkpoint.shards().size()));
  out.set("tensors", static_cast<std::uint64_t>(report.checkpoint.tensors().size()));
  out.set("bytes", report.checkpoint.total_bytes());
  out.set("producer", producer_name(report.identified.producer));
  out.set("evidence", report.identified.producer_evidence);
  out.set("inventory", inventory_json(report.inventory));
  out.set("schemes", scheme_totals_json(report.inventory));
  out.set("findings", findings_json(report.findings));
  out.set("result", result_json(report.findings));
  out.set("runnable", is_runnable(report));
  out.set("run_by", verdict_json(run_verdict(report)));
  if (!report.config_error.empty()) out.set("config_error", report.config_error);
  if (!report.layer_error.empty()) out.set("layer_error", report.layer_error);
  if (report.selection) out.set("selection", selection_json(*report.selection));
  Json engines{Json::Array{}};
  for (const Selection& selection : report.engines) engines.push_back(selection_json(selection));
  out.set("engines", engines);
  if (report.memory) out.set("memory", memory_json(*report.memory));
  out.set("splits", splits_json(report.splits));
  return out;
}

Result<int> run_check(const Options& options) {
  if (is_prepared(options.path)) {
    return check_prepared({.path = options.path,
                           .source = options.source,
                           .headers_only = options.headers_only,
                           .json = options.json,
                           .device = options.device.text});
  }
  if (!options.source.empty()) {
    return Error{ErrorCode::invalid_argument, "only a prepared model is compared with its source",
                 "--source"};
  }
  FEWBIT_TRY(const Report report, make_report(options));
  if (report.environment_error) return *report.environment_error;
  if (options.json) {
    print_json(report_json(report));
  } else {
    print_head(report);
    print_out("what it holds\n{}\n", Lines{inventory_text(report.inventory)});
    print_out("by scheme, all roles together\n{}\n", Lines{scheme_totals_text(report.inventory)});
    print_out("{}", Lines{findings_text(report.findings, options.headers_only)});
    print_layer(report);
    print_plans(report);
    print_out("\nresult: {}{}\n", result_text(report.findings),
              has_problem(report.findings) ? "" : "; " + verdict_text(run_verdict(report)));
  }
  return has_problem(report.findings) ? exit_failure : exit_fine;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "check", "What each tensor of a checkpoint is, whether the parts fit, what can run it");
  command
      ->add_option("DIR", options->path, "Checkpoint directory, index or file; or prepared folder")
      ->required()
      ->check(not_empty);
  CLI::Option* headers =
      command->add_flag("--headers-only", options->headers_only, "Do not read the scales");
  command->add_flag("--weights", options->weights, "Read all codes too, not only the scales")
      ->excludes(headers);
  command->add_option(
      "--source", options->source,
      "Of a prepared model: unpack every expert and compare it with this checkpoint");
  add_device_option(*command, options->device);
  add_json_option(*command, *options);
  command->footer(
      "The last line says whether the files are fine and what can run them; exit code 1 when\n"
      "there is a warning or an error in them.\n"
      "Examples:\n  fewbit check models/tiny-moe\n"
      "  fewbit check DIR --json | jq '.findings[] | .rule'");
  set_body(*command, *options, exit_code, [options] { return run_check(*options); });
}

}  // namespace fewbit::cli
