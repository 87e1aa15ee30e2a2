// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>

#include "backends/foreign/marlin_rules.hpp"
#include "backends/foreign/rules.hpp"
#include "core/device_info.hpp"
#include "select/backend.hpp"

namespace fewbit::foreign {
namespace {

// What one evaluation looks at, and what it found.
struct Examination {
  const Rules& rules;
  const MoeProblem& problem;
  const DeviceInfo& device;
  std::vector<Refusal> refusals = {};
  bool as_stored = false;  // left_as_stored

  void refuse(Reason reason, std::string needs, std::string has) {
    refusals.push_back({reason, std::move(needs), std::move(has)});
  }
  bool on_platform() const { return rules.devices.contains(device.kind); }
  bool on_gpu() const { return on_platform() && device.kind == DeviceKind::cuda; }
};

// Names of the members among the first `count` enumerators.
template <class E>
std::vector<std::string> names_of(const Set<E>& set, int count, const char* (*name)(E)) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (set.contains(static_cast<E>(i))) names.emplace_back(name(static_cast<E>(i)));
  }
  return names;
}
const char* platform_name(DeviceKind kind) {
  constexpr const char* names[] = {"a CPU", "a CUDA device", "an XPU"};
  return names[static_cast<std::size_t>(kind)];
}

constexpr int device_kinds = static_cast<int>(DeviceKind::xpu) + 1;
constexpr int weight_kinds = static_cast<int>(WeightKind::other) + 1;
constexpr int activation_kinds = static_cast<int>(ActivationKind::mxfp4) + 1;
constexpr int exchange_kinds = static_cast<int>(TokenExchange::flashinfer_two_sided) + 1;
constexpr int routing_kinds = static_cast<int>(Routing::other) + 1;

std::string version(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

std::string range_text(const Capability& range) {
  if (range.to >= any_capability.to) return version(range.from) + " or higher";
  if (range.from == range.to) return version(range.from);
  return version(range.from) + " to " + version(range.to);
}

std::string capability_text(const DeviceInfo& device) {
  return "compute capability " + version(device.compute_capability);
}

void check_device(Examination& x) {
  const Rules& rules = x.rules;
  if (!x.on_platform()) {
    x.refuse(Reason::device, joined(names_of(rules.devices, device_kinds, platform_name)),
             device_label(x.device));
    return;
  }
  if (x.device.kind == DeviceKind::cpu && x.device.isa < rules.isa) {
    x.refuse(Reason::isa, isa_name(rules.isa), isa_name(x.device.isa));
  }
  if (x.on_gpu() && x.device.cuda_version > 0 && x.device.cuda_version < rules.cuda_version) {
    x.refuse(Reason::device, "CUDA " + cuda_version_text(rules.cuda_version) + " or newer",
             "CUDA " + cuda_version_text(x.device.cuda_version));
  }
  if (rules.capabilities.empty() || !x.on_gpu()) return;
  std::vector<std::string> ranges;
  for (const Capability& range : rules.capabilities) {
    if (range.contains(x.device.compute_capability)) return;
    ranges.push_back(range_text(range));
  }
  x.refuse(Reason::device, "compute capability " + joined(ranges), capability_text(x.device));
}

WeightKind kind_of(const Examination& x, const Scheme& scheme) {
  const WeightKind kind = weight_kind(scheme);
  // The loader that leaves GPTQ as it is has a key for this group.
  const bool group_32 = x.as_stored && scheme.scale->granularity.cols == 32;
  return group_32 && kind == WeightKind::int4 ? WeightKind::int4_g32 : kind;
}

std::string weight_rule_text(const WeightRule& rule) {
  std::string text = joined(names_of(rule.weights, weight_kinds, weight_kind_name));
  const auto forms = names_of(rule.activations, activation_kinds, activation_kind_name);
  if (static_cast<int>(forms.size()) == activation_kinds) return text + " with any activations";
  return text + " with " + joined(forms) + " activations";
}

void check_weight(Examination& x, const char* which, const Scheme& scheme) {
  const WeightKind weight = kind_of(x, scheme);
  const ActivationKind activation = activation_kind(scheme);
  std::vector<std::string> all;
  std::vector<std::string> capabilities;
  for (const WeightRule& rule : x.rules.weights) {
    std::string text = weight_rule_text(rule);
    if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
    if (!rule.weights.contains(weight) || !rule.activations.contains(activation)) continue;
    if (!x.on_gpu() || rule.capability.contains(x.device.compute_capability)) return;
    capabilities.push_back(range_text(rule.capability));
  }
  const std::string pair = fmt::format("{} with {} activations", weight_kind_name(weight),
                                       activation_kind_name(activation));
  if (!capabilities.empty()) {
    x.refuse(Reason::device,
             fmt::format("compute capability {} for {}", joined(capabilities), pair),
             capability_text(x.device));
    return;
  }
  x.refuse(Reason::weight, fmt::format("{} in {}", which, joined(all, "; ", "; or ")),
           fmt::format("{} ({}{})", pair, scheme_text(scheme),
                       x.as_stored ? ", its groups halved until they fit" : ""));
}

void check_as_stored(Examination& x) {
  const std::int64_t group =
      std::min(x.problem.gate_up.scale->granularity.cols, x.problem.down.scale->granularity.cols);
  if (group > 0 && group < 32) {
    x.refuse(Reason::weight, "groups of 32 or more, or one scale a channel", std::to_string(group));
  }
  if (!x.rules.gptq_as_stored) {
    x.refuse(Reason::weight, "GPTQ of sizes that fit Marlin", "the layout of the checkpoint");
  }
}

void check_weights(Examination& x) {
  const MoeProblem& problem = x.problem;
  const auto check = [&](const char* which, const Scheme& scheme) {
    check_weight(x, which, scheme);
    std::ranges::move(integer_needs(x.rules, which, scheme, kind_of(x, scheme)),
                      std::back_inserter(x.refusals));
  };
  if (problem.gate_up == problem.down) {
    check("weights", problem.down);
  } else {
    check("gate and up", problem.gate_up);
    check("down", problem.down);
  }
  if (x.as_stored) check_as_stored(x);
  if (problem.biases && !x.rules.biases.contains(weight_kind(problem.gate_up))) {
    x.refuse(Reason::weight, "experts without biases", "biases");
  }
}

void check_function(Examination& x) {
  const ActivationParams& params = x.problem.activation;
  if (!x.rules.non_gated && !activation_gated(params.kind)) {
    x.refuse(Reason::activation, "a gated layer",
             std::string("no gate, ") + activation_name(params.kind));
  }
  if (x.rules.functions.empty()) return;
  const WeightKind weight = weight_kind(x.problem.gate_up);
  std::vector<std::string> names;
  for (const FunctionRule& rule : x.rules.functions) {
    if (!rule.weights.contains(weight)) continue;
    names.emplace_back(activation_name(rule.function));
    if (rule.function != params.kind) continue;
    if (params.limit && !rule.limit) {
      x.refuse(Reason::activation, std::string(activation_name(params.kind)) + " without a limit",
               fmt::format("limit {}", *params.limit));
    }
    return;
  }
  if (names.empty()) return;  // the weights are refused already
  x.refuse(Reason::activation, joined(names), activation_name(params.kind));
}

void check_dtype(Examination& x) {
  if (x.rules.dtypes.empty()) return;
  std::vector<std::string> names;
  for (const DTypeRule& rule : x.rules.dtypes) {
    if (x.on_gpu() && !rule.capability.contains(x.device.compute_capability)) continue;
    if (rule.dtype == x.problem.activation_dtype) return;
    names.emplace_back(dtype_name(rule.dtype));
  }
  if (names.empty()) return;  // the device is refused already
  x.refuse(Reason::dtype, "activations in " + joined(names),
           std::string(dtype_name(x.problem.activation_dtype)));
}

void check_spread(Examination& x) {
  const Parallel& parallel = x.problem.parallel;
  const ExpertSpread spread = x.rules.experts;
  if (spread != ExpertSpread::any && x.problem.expert_map && parallel.expert == 1) {
    x.refuse(Reason::routing, "experts without a map", "expert map");
  }
  if (spread == ExpertSpread::one_rank && parallel.expert > 1) {
    x.refuse(Reason::parallel, "all experts on one rank",
             fmt::format("experts over {} ranks", parallel.expert));
  }
  if (spread == ExpertSpread::tensor_size && parallel.expert > 1 &&
      parallel.expert != parallel.tensor) {
    x.refuse(Reason::parallel,
             fmt::format("experts over 1 or {} ranks, as tensor parallel", parallel.tensor),
             fmt::format("experts over {} ranks", parallel.expert));
  }
  if (!x.rules.exchanges.contains(parallel.exchange)) {
    x.refuse(Reason::parallel,
             "token exchange " + joined(names_of(x.rules.exchanges, exchange_kinds, exchange_name)),
             exchange_name(parallel.exchange));
  }
}

void check_router(Examination& x) {
  const MoeProblem& problem = x.problem;
  if (!x.rules.weight_on_input && problem.router_weight_side == RouterWeightSide::input) {
    x.refuse(Reason::routing, "router weight on the output", "input");
  }
  if (!x.rules.routings.contains(problem.routing)) {
    x.refuse(Reason::routing,
             "routing " + joined(names_of(x.rules.routings, routing_kinds, routing_name)),
             routing_name(problem.routing));
  }
  if (problem.router_dtype == DType::f32 && !x.rules.f32_logits.contains(problem.routing)) {
    x.refuse(Reason::routing,
             "router logits in bf16, or routing " +
                 joined(names_of(x.rules.f32_logits, routing_kinds, routing_name)),
             fmt::format("f32 logits with {}", routing_name(problem.routing)));
  }
}

void check_router_limits(Examination& x) {
  const MoeProblem& problem = x.problem;
  const RouterLimits& limits = x.rules.router;
  const std::int64_t experts = experts_to_choose(problem);
  const auto need = [&](bool met, std::string needs, std::string has) {
    if (!met) x.refuse(Reason::routing, std::move(needs), std::move(has));
  };
  if (limits.most_top_k > 0) {
    need(problem.top_k <= limits.most_top_k, fmt::format("top_k <= {}", limits.most_top_k),
         std::to_string(problem.top_k));
  }
  if (limits.experts_multiple > 0) {
    need(experts % limits.experts_multiple == 0,
         fmt::format("experts % {} = 0", limits.experts_multiple), std::to_string(experts));
  }
  if (limits.more_experts_than_top_k) {
    need(experts > problem.top_k, fmt::format("more experts than top_k {}", problem.top_k),
         std::to_string(experts));
  }
  if (limits.llama4_top_1 && problem.routing == Routing::llama4) {
    need(problem.top_k == 1, "top_k 1 with routing llama4", std::to_string(problem.top_k));
  }
  if (limits.most_top_groups == 0 || problem.routing != Routing::deepseek_v3) return;
  need(problem.top_groups <= limits.most_top_groups,
       fmt::format("top_groups <= {}", limits.most_top_groups), std::to_string(problem.top_groups));
  need(problem.router_groups > 0 && experts % problem.router_groups == 0,
       fmt::format("experts % router groups {} = 0", problem.router_groups),
       std::to_string(experts));
}

bool holds(When when, const MoeProblem& problem) {
  const bool gated = activation_gated(problem.activation.kind);
  const bool ordered = problem.down.act_order == ActOrder::group;
  switch (when) {
    case When::always:
      return true;
    case When::gated:
      return gated;
    case When::non_gated:
      return !gated;
    case When::swigluoai:
      return problem.activation.kind == Activation::swigluoai;
    case When::group_order:
      return ordered;
    case When::no_group_order:
      return !ordered;
    case When::hidden_128:
      return problem.hidden_size % 128 == 0;
    case When::not_hidden_128:
      return problem.hidden_size % 128 != 0;
  }
  return true;
}

std::int64_t divisor_of(const Divisor& rule, std::int64_t group) {
  switch (rule.group) {
    case GroupUse::ignored:
      return rule.by;
    case GroupUse::alone:
      return std::max<std::int64_t>(group, 1);
    case GroupUse::at_least:
      return std::max(rule.by, group);
    case GroupUse::at_most:
      return group > 0 ? std::min(rule.by, group) : rule.by;
  }
  return rule.by;
}

// The largest divisor that each size fails; what divides it needs no words of its own.
void check_shapes(Examination& x) {
  for (const Divisor::Size size : {Divisor::Size::hidden, Divisor::Size::intermediate}) {
    const bool hidden = size == Divisor::Size::hidden;
    const std::int64_t value = hidden ? x.problem.hidden_size : x.problem.intermediate_size;
    // hidden_size is the k of gate and up, intermediate_size that of down.
    const Scheme& scheme = hidden ? x.problem.gate_up : x.problem.down;
    const std::int64_t group = scheme.scale ? scheme.scale->granularity.cols : 0;
    const std::int64_t scales = whole_scales(x.problem, hidden);
    std::int64_t unmet = value % scales == 0 ? 1 : scales;
    for (const Divisor& rule : x.rules.shapes) {
      if (rule.size != size || !rule.weights.contains(weight_kind(scheme)) ||
          !holds(rule.when, x.problem)) {
        continue;
      }
      const std::int64_t by = divisor_of(rule, group);
      if (value % by != 0) unmet = std::lcm(unmet, by);
    }
    if (x.as_stored && group > 0 && value % group != 0) unmet = std::lcm(unmet, group);
    if (unmet == 1) continue;
    x.refuse(Reason::shape,
             fmt::format("{} % {} = 0", hidden ? "hidden_size" : "intermediate_size", unmet),
             unfit_text(value, unmet, scales, scheme.act_order == ActOrder::group));
  }
}

bool fits_marlin(const MoeProblem& problem, const DeviceInfo& device) {
  static constexpr Rules rules = marlin::rules_for(ordered_exchanges);
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    if (std::ranges::find(marlin::groups, scheme->scale->granularity.cols) ==
        std::end(marlin::groups)) {
      return false;
    }
  }
  Examination x{.rules = rules, .problem = problem, .device = device};
  check_shapes(x);
  return x.refusals.empty();
}

bool is_gptq(const Scheme& scheme) {
  return (scheme.producer == Producer::gptq || scheme.producer == Producer::auto_round) &&
         integers.contains(weight_kind(scheme));
}

// GPTQ that does not fit Marlin: on GPUs vLLM's loader leaves it as the checkpoint has it
// (MoeWNA16) and halves groups until they divide both sizes, at least to 32.
std::optional<MoeProblem> left_as_stored(const Rules& rules, const MoeProblem& problem,
                                         const DeviceInfo& device) {
  if (rules.loader != Loader::vllm || device.kind != DeviceKind::cuda ||
      !is_gptq(problem.gate_up) || !is_gptq(problem.down) || fits_marlin(problem, device)) {
    return std::nullopt;
  }
  MoeProblem seen = problem;
  for (Scheme* scheme : {&seen.gate_up, &seen.down}) {
    std::int64_t& group = scheme->scale->granularity.cols;
    const auto divides = [&] {
      return problem.hidden_size % group == 0 && problem.intermediate_size % group == 0;
    };
    while (group >= 64 && !divides()) group /= 2;
  }
  return seen;
}

}  // namespace

std::vector<Refusal> unmet_needs(const Rules& rules, const MoeProblem& problem,
                                 const DeviceInfo& device) {
  const bool other = rules.other_weights.contains(weight_kind(problem.gate_up));
  const std::optional<MoeProblem> stored = left_as_stored(rules, problem, device);
  Examination x{.rules = other ? *rules.other : rules,
                .problem = stored ? *stored : problem,
                .device = device,
                .as_stored = stored.has_value()};
  check_device(x);
  check_weights(x);
  check_function(x);
  check_dtype(x);
  check_spread(x);
  check_router(x);
  check_router_limits(x);
  check_shapes(x);
  return std::move(x.refusals);
}

}  // namespace fewbit::foreign
