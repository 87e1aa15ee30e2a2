// SPDX-License-Identifier: Apache-2.0
#include "prepared/prepare_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <unordered_set>
#include <utility>

#include "prepared/deal_layer.hpp"
#include "prepared/plan_rest.hpp"
#include "prepared/source_expert.hpp"
#include "select/activation_default.hpp"
#include "select/gate_up_counts.hpp"
#include "select/layer_problem.hpp"

namespace fewbit {
namespace {

// The layers with routed experts. Error unsupported: a module of an expert that can't be read.
Result<std::set<int>> expert_layers(const Checkpoint& source, const Identified& identified) {
  std::set<int> layers;
  for (const Module& module : identified.modules) {
    if (module.layer < 0 || module.expert == -1) continue;
    if (!module.unreadable.empty()) {
      return Error{ErrorCode::unsupported, module.unreadable, module.name};
    }
    layers.insert(module.layer);
  }
  if (layers.empty()) {
    return Error{ErrorCode::unsupported, "no routed experts, which is what prepare packs",
                 source.directory().string()};
  }
  return layers;
}

std::vector<const Module*> modules_of(const LayerExperts& experts, std::int64_t expert) {
  const LayerExperts::Modules& of = experts.modules(expert);
  std::vector<const Module*> list;
  for (const Module* module : {of.gate, of.up, of.down, of.gate_up}) {
    if (module != nullptr) list.push_back(module);
  }
  return list;
}

// "model.layers.3.mlp.experts"; of GGUF "blk.3".
std::string experts_name(const LayerExperts& experts, int layer) {
  constexpr std::string_view word = ".experts";
  const std::string& name = modules_of(experts, 0).front()->name;
  const std::size_t at = name.find(word);
  if (at != std::string::npos) return name.substr(0, at + word.size());
  const std::size_t part = name.find(".ffn_");
  return part == std::string::npos ? fmt::format("layer {}", layer) : name.substr(0, part);
}

// Whether a backend's layout may have no place for two global scales of gate and up.
bool may_want_one_global(const Backend& backend, const MoeProblem& problem) {
  return !backend.runs_here() && problem.gate_up.scale && problem.gate_up.scale->has_global;
}

class Planner {
 public:
  // again: a manifest that says which backend each layer is for; nullptr: they are selected.
  Planner(const Checkpoint& source, const Identified& identified, const PrepareOptions& options,
          const PreparedManifest* again)
      : source_(source), identified_(identified), options_(options), again_(again) {}

  Result<PreparePlan> plan() {
    if (const Backend* forced = find_backend(options_.backend)) engine_ = forced->engine;
    FEWBIT_TRY(config_, prepare_config(source_, identified_, engine_));
    dtype_ = options_.activation_dtype.value_or(default_activation_dtype(engine_, config_.dtype));
    if (options_.device) {
      device_ = *options_.device;
    } else {
      FEWBIT_TRY(device_, describe_device("cpu"));
    }
    FEWBIT_TRY(const std::set<int> layers, expert_layers(source_, identified_));
    for (const int layer : layers) FEWBIT_TRY(add_layer(layer));
    FEWBIT_TRY(add_rest());
    add_tasks();
    FEWBIT_TRY(plan_.sources, source_files(source_, again_ == nullptr ? std::vector<std::string>()
                                                                      : source_names(*again_)));
    identify_job();
    return std::move(plan_);
  }

 private:
  // Of the whole layer.
  Result<MoeProblem> problem_of(const ExpertWeights& first, std::int64_t experts,
                                const std::string& where) const {
    const MoeWeights one{
        .hidden_size = first.up.k, .intermediate_size = first.up.n, .experts = {first}};
    auto made = make_problem(one, config_, dtype_, config_.max_positions);
    if (!made) return Error{made.error().code, made.error().what, where};
    made->num_experts = experts;
    made->expert_map = false;
    made->parallel.exchange = options_.exchange;
    made->where = where;
    return made;
  }

  MoeProblem problem_of(const MoeProblem& whole, const ExpertSlice& slice) const {
    MoeProblem share = whole;
    share.intermediate_size = slice.padded_features;
    share.num_experts = slice.experts;
    share.expert_map = slice.experts < slice.all_experts;
    share.parallel.tensor = options_.split.tensor_ranks;
    share.parallel.expert = options_.split.expert_ranks;
    return share;
  }

  Result<void> add_layer(int number) {
    PlannedLayer layer;
    FEWBIT_TRY(layer.experts, LayerExperts::find(identified_, number));
    const std::string where = experts_name(layer.experts, number);
    const std::int64_t count = layer.experts.count();
    if (config_.num_experts > 0 && count != config_.num_experts) {
      return Error{ErrorCode::inconsistent,
                   fmt::format("{} experts, config.json says {}", count, config_.num_experts),
                   where};
    }
    FEWBIT_TRY(layer.zero_biases, layer.experts.has_zero_biases(source_));
    FEWBIT_TRY(const ExpertWeights any, read_source_expert(layer, source_, 0, where + " expert 0"));
    FEWBIT_TRY(MoeProblem whole, problem_of(any, count, where));
    FEWBIT_TRY(const std::vector<std::int64_t> two_orders,
               two_order_experts(source_, layer.experts));
    whole.two_order_experts = std::ssize(two_orders);
    FEWBIT_TRY(const Deal deal, deal_of(any, whole, number));
    layer.backend = deal.backend;
    layer.slice = deal.slice;
    MoeProblem problem = problem_of(whole, layer.slice);
    FEWBIT_TRY(check_layout(layer, two_orders, problem));
    FEWBIT_TRY(const ExpertWeights cut, slice_expert(any, layer.slice, where + " expert 0"));
    FEWBIT_TRY(layer.info.plan, layer.backend->plan_moe(problem, cut));
    layer.info.layer = number;
    layer.info.file = fmt::format("prepared/layer-{:05}.safetensors", number);
    layer.info.backend = layer.backend->name;
    layer.info.problem = problem;
    layer.info.first_expert = layer.slice.first_expert;
    layer.info.all_experts = layer.slice.all_experts;
    layer.info.first_feature = layer.slice.first_feature;
    layer.info.all_features = layer.slice.all_features;
    FEWBIT_TRY(layer.file, plan_layer_file(layer.info));
    plan_.layers.push_back(std::move(layer));
    return {};
  }

  // As the manifest says, whatever this machine would choose.
  Result<Deal> deal_of(const ExpertWeights& any, const MoeProblem& whole, int number) const {
    const DealRequest request{
        .any = any, .whole = whole, .options = options_, .device = device_, .engine = engine_};
    if (again_ == nullptr) return deal_layer(request);
    const auto& layers = again_->layers;
    const auto at = std::ranges::find(layers, number, &PreparedLayerInfo::layer);
    if (at != layers.end()) return deal_layer_again(request, *at);
    return Error{ErrorCode::inconsistent,
                 fmt::format("layer {} of the source is not among the {} prepared layers", number,
                             layers.size()),
                 whole.where};
  }

  // What only the weights tell is settled here too: once begun, a layer can be packed. Of all
  // experts, so that every rank is told the same.
  Result<void> check_layout(const PlannedLayer& layer, std::span<const std::int64_t> two_orders,
                            MoeProblem& problem) const {
    problem.two_scale_experts = 0;
    if (layer.backend->runs_here()) two_orders = {};
    problem.two_order_experts = std::ssize(two_orders);
    std::int64_t first = two_orders.empty() ? -1 : two_orders.front();
    if (may_want_one_global(*layer.backend, problem)) {
      FEWBIT_TRY(const std::vector<std::int64_t> two_scales,
                 two_scale_experts(source_, layer.experts));
      problem.two_scale_experts = std::ssize(two_scales);
      if (!two_scales.empty() && (first < 0 || two_scales.front() < first)) {
        first = two_scales.front();
      }
    }
    const std::string reason = layer.backend->why_unprepared(problem);
    if (reason.empty()) return {};
    const std::string expert = first < 0 ? "" : fmt::format(" (the first is expert {})", first);
    return Error{ErrorCode::unsupported,
                 fmt::format("{} is {}not preparable: {}{}", layer.backend->name,
                             layer.backend->runs_here() ? "" : "described, ", reason, expert),
                 problem.where};
  }

  // All tensors but those of the experts.
  Result<void> add_rest() {
    std::unordered_set<std::string_view> packed;
    for (const PlannedLayer& layer : plan_.layers) {
      for (std::int64_t e = 0; e < layer.experts.count(); ++e) {
        for (const Module* module : modules_of(layer.experts, e)) {
          for (const Module::Part& part : module->parts) packed.insert(part.tensor);
        }
        if (layer.experts.fused()) break;
      }
    }
    for (const TensorInfo& info : source_.tensors()) {
      if (!packed.contains(info.name)) plan_.kept.push_back(&info);
    }
    plan_.plain_rest = source_.gguf_metadata() == nullptr &&
                       std::ranges::none_of(identified_.modules, [&](const Module& module) {
                         return module.scheme.quantized() && !module.parts.empty() &&
                                !packed.contains(module.parts.front().tensor);
                       });
    FEWBIT_TRY(plan_.rest, plan_rest(source_, plan_.kept));
    return {};
  }

  void add_task(PrepareTask task) {
    plan_.source_bytes += task.source_bytes;
    plan_.tasks.push_back(task);
  }

  void add_tasks() {
    for (std::size_t i = 0; i < plan_.kept.size(); ++i) {
      add_task(
          {.file = 0, .index = static_cast<std::int64_t>(i), .source_bytes = plan_.kept[i]->bytes});
    }
    for (std::size_t l = 0; l < plan_.layers.size(); ++l) {
      const PlannedLayer& layer = plan_.layers[l];
      for (std::int64_t e = 0; e < layer.slice.experts; ++e) {
        add_task({.file = l + 1,
                  .index = e,
                  .source_bytes = expert_bytes(layer, layer.slice.first_expert + e)});
      }
    }
  }

  std::uint64_t expert_bytes(const PlannedLayer& layer, std::int64_t expert) const {
    std::uint64_t bytes = 0;
    for (const Module* module : modules_of(layer.experts, expert)) {
      for (const Module::Part& part : module->parts) {
        const TensorInfo* info = source_.find(part.tensor);
        if (info != nullptr) bytes += info->bytes;
      }
    }
    return layer.experts.fused() ? bytes / static_cast<std::uint64_t>(layer.experts.count())
                                 : bytes;
  }

  void identify_job() {
    JobIdentity& job = plan_.identity;
    std::string backends;
    for (const PlannedLayer& layer : plan_.layers) {
      if (backends.find(layer.info.backend) == std::string::npos) {
        backends += (backends.empty() ? "" : ", ") + layer.info.backend;
      }
    }
    job.emplace_back("backend", backends);
    job.emplace_back("activation dtype", std::string(dtype_name(dtype_)));
    job.emplace_back("tensor ranks", std::to_string(options_.split.tensor_ranks));
    job.emplace_back("expert ranks", std::to_string(options_.split.expert_ranks));
    job.emplace_back("rank", std::to_string(options_.split.rank));
    job.emplace_back("token exchange", exchange_name(options_.exchange));
    job.emplace_back("tasks", std::to_string(plan_.tasks.size()));
    for (const SourceFile& file : plan_.sources) {
      for (const auto& [fact, value] : source_facts(file)) {
        job.emplace_back(fmt::format("source {}, {}", file.name, fact), value);
      }
    }
  }

  const Checkpoint& source_;
  const Identified& identified_;
  const PrepareOptions& options_;
  const PreparedManifest* again_;
  Engine engine_ = Engine::fewbit;  // whose kernels read it
  ModelConfig config_;
  DType dtype_ = DType::bf16;  // of activations
  DeviceInfo device_;
  PreparePlan plan_;
};

}  // namespace

std::string PreparePlan::file_name(std::size_t file) const {
  return file == 0 ? rest.shards.front().file : layers[file - 1].info.file;
}

std::uint64_t PreparePlan::file_bytes(std::size_t file) const {
  return file == 0 ? rest.shards.front().file_bytes : layers[file - 1].file.bytes;
}

Result<PreparePlan> plan_prepare(const Checkpoint& source, const Identified& identified,
                                 const PrepareOptions& options) {
  return Planner(source, identified, options, nullptr).plan();
}

Result<PreparePlan> plan_again(const Checkpoint& source, const Identified& identified,
                               const PreparedManifest& manifest) {
  const PreparedLayerInfo& first = manifest.layers.front();
  PrepareOptions options;
  options.backend = first.backend;
  options.activation_dtype = first.problem.activation_dtype;
  options.split = manifest.split;
  options.exchange = first.problem.parallel.exchange;
  return Planner(source, identified, options, &manifest).plan();
}

}  // namespace fewbit
