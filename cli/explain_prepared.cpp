// SPDX-License-Identifier: Apache-2.0
#include "explain_prepared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "explain_page.hpp"
#include "prepared/manifest.hpp"
#include "prepared/prepared_readers.hpp"
#include "prepared_page.hpp"

namespace fewbit::cli {
namespace {

// What is dealt and packed is not dealt once more.
Result<void> check_spread(const PreparedQuestion& question, const PreparedManifest& manifest) {
  FEWBIT_TRY(const Parallel asked, question.spread.parallel());
  if (asked == Parallel{}) return {};
  const char* option = asked.tensor > 1 ? "--tp" : asked.expert > 1 ? "--ep" : "--exchange";
  return Error{ErrorCode::invalid_argument,
               fmt::format("what is {} is not spread again: ask about the checkpoint that it was "
                           "made from",
                           prepared_line(manifest)),
               option};
}

Result<PreparedLayerInfo> layer_asked(const PreparedQuestion& question,
                                      const PreparedManifest& manifest) {
  if (question.layer < 0) return manifest.layers.front();
  const auto at = std::ranges::find(manifest.layers, question.layer, &PreparedLayerInfo::layer);
  if (at != manifest.layers.end()) return *at;
  return Error{ErrorCode::invalid_argument,
               fmt::format("layer {} has no routed experts among the {} prepared layers: {}",
                           question.layer, manifest.layers.size(), question.path),
               "--layer"};
}

// "layer 0, and 5 more alike": prepared for one backend, of one shape and scheme.
std::string layer_name(const PreparedQuestion& question, const PreparedManifest& manifest,
                       const PreparedLayerInfo& layer) {
  const std::string name = fmt::format("layer {}", layer.layer);
  if (question.layer >= 0) return name;
  const auto alike = std::ranges::count_if(manifest.layers, [&](const PreparedLayerInfo& other) {
    return other.backend == layer.backend && other.problem.gate_up == layer.problem.gate_up &&
           other.problem.down == layer.problem.down &&
           other.problem.num_experts == layer.problem.num_experts &&
           other.problem.intermediate_size == layer.problem.intermediate_size;
  });
  return alike > 1 ? fmt::format("{}, and {} more alike", name, alike - 1) : name;
}

Json prepared_json(const PreparedLayerInfo& layer, const PrepareSplit& split) {
  Json out;
  out.set("backend", layer.backend);
  out.set("layouts", layouts_text(layer.plan));
  out.set("tensor_ranks", split.tensor_ranks);
  out.set("expert_ranks", split.expert_ranks);
  out.set("rank", split.rank);
  return out;
}

}  // namespace

Result<int> explain_prepared(const PreparedQuestion& question) {
  FEWBIT_TRY(const PreparedManifest manifest, read_manifest(question.path));
  FEWBIT_TRY(check_spread(question, manifest));
  FEWBIT_TRY(const PreparedLayerInfo layer, layer_asked(question, manifest));
  FEWBIT_TRY(const DeviceInfo device, describe_device(question.device));
  Engine engine = engine_of(layer);
  if (!question.spread.engine.empty()) {
    FEWBIT_TRY(engine, question.spread.engine_asked());
  }
  MoeProblem problem = layer.problem;
  problem.activation_dtype = question.activation_dtype.value_or(problem.activation_dtype);
  problem.where = fmt::format("layer {}", layer.layer);  // as of a checkpoint
  FEWBIT_TRY(const PreparedReaders readers,
             prepared_readers(layer, problem, device, {question.backend, engine}));
  if (question.json) {
    Json out = selection_json(readers.selection);
    out.set("prepared", prepared_json(layer, manifest.split));
    out.set("layer", problem.where);
    out.set("device", device.name);
    out.set("problem", problem_json(problem));
    out.set("variants", variants_json(problem, device, readers.selection));
    if (readers.error) out.set("error", error_json(*readers.error));
    print_json(out);
  } else {
    print_out("{}\n\n", prepared_line(manifest));
    problem.where = layer_name(question, manifest, layer);
    print_out("{}", Lines{explain(problem, device, readers.selection)});
  }
  std::fflush(stdout);
  if (!readers.error) return exit_fine;
  print_error(*readers.error, false);
  return is_usage_error(*readers.error) ? exit_usage : exit_failure;
}

}  // namespace fewbit::cli
