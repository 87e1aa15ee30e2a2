// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "fewbit/selection.hpp"
#include "select/planned_layouts.hpp"
#include "select/run_variants.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

std::string activation_text(const ActivationParams& params) {
  std::string text = activation_name(params.kind);
  if (params.kind == Activation::swigluoai) {
    text += fmt::format(" alpha {} beta {}", params.alpha, params.beta);
  }
  if (params.limit) text += fmt::format(" limit {}", *params.limit);
  return text;
}

std::string device_text(const DeviceInfo& device) {
  const std::string name = device.name.empty() ? "" : device.name + ", ";
  if (device.kind == DeviceKind::cuda) {
    return fmt::format("{}compute capability {}.{}, {} multiprocessors", name,
                       device.compute_capability / 10, device.compute_capability % 10,
                       device.sm_count);
  }
  if (device.kind == DeviceKind::xpu) {
    return fmt::format("{}XPU, {} Xe cores", name, device.sm_count);
  }
  return fmt::format("{}{}, {} thread{}", name, isa_name(device.isa), device.usable_threads,
                     device.usable_threads == 1 ? "" : "s");
}

std::string verdict(const Candidate& candidate, const Selection& selection) {
  if (candidate.backend == selection.chosen) return selection.forced ? "chosen, forced" : "chosen";
  if (!candidate.refusals.empty()) return "refused";
  if (candidate.only_forced.empty()) return "possible";
  return "only when forced: " + candidate.only_forced;
}

std::string parallel_text(const MoeProblem& problem) {
  const Parallel& parallel = problem.parallel;
  if (parallel == Parallel{}) return "";
  return fmt::format(
      "         one rank of tensor parallel {}, expert parallel {}, token exchange {}\n",
      parallel.tensor, parallel.expert, exchange_name(parallel.exchange));
}

std::string problem_text(const MoeProblem& problem) {
  return fmt::format(
      "layer    {}\n"
      "         {} experts, top-{}, hidden {}, intermediate {}, {}\n"
      "         {} activations, router weight on the {}{}, routing {}\n{}"
      "weights  gate and up {}\n"
      "         down {}\n",
      problem.where, problem.num_experts, problem.top_k, problem.hidden_size,
      problem.intermediate_size, activation_text(problem.activation),
      dtype_name(problem.activation_dtype),
      problem.router_weight_side == RouterWeightSide::output ? "output" : "input",
      problem.expert_map ? ", expert map" : "", routing_name(problem.routing),
      parallel_text(problem), scheme_text(problem.gate_up), scheme_text(problem.down));
}

std::string candidate_text(const Candidate& candidate, const Selection& selection) {
  std::string text = fmt::format("  {:<26} {}\n", candidate.backend, verdict(candidate, selection));
  for (const Refusal& refusal : candidate.refusals) {
    fmt::format_to(std::back_inserter(text), "    {}: needs {}, has {}\n",
                   reason_name(refusal.reason), refusal.needs, refusal.has);
  }
  if (candidate.refusals.empty() && !candidate.unbuilt.empty()) {
    fmt::format_to(std::back_inserter(text), "    not built: {}\n", candidate.unbuilt);
  }
  if (candidate.refusals.empty() && !candidate.unprepared.empty()) {
    fmt::format_to(std::back_inserter(text), "    {}not preparable: {}\n",
                   selection.engine == Engine::fewbit ? "" : "described, ", candidate.unprepared);
  }
  return text;
}

std::string chosen_text(const Selection& selection) {
  if (!selection.chosen.empty()) {
    const Candidate* of = find_candidate(selection, selection.chosen);
    const bool here = of == nullptr || of->unbuilt.empty();
    return selection.chosen + (selection.forced ? ", forced" : "") +
           (here ? "" : "; this binary prepares for it, but can't run it: see not built");
  }
  // One that is chosen by itself was not: another one was forced.
  for (const Candidate& c : selection.candidates) {
    if (c.refusals.empty() && c.only_forced.empty()) return "none: the forced one can't run it";
  }
  std::string by_name;
  for (const Candidate& c : selection.candidates) {
    if (c.refusals.empty()) by_name += (by_name.empty() ? "" : ", ") + c.backend;
  }
  return "none: " + none_of_them_text(selection) +
         (by_name.empty() ? "" : " unless forced: " + by_name);
}

}  // namespace

std::vector<RunVariant> run_variants(const MoeProblem& problem, const DeviceInfo& device,
                                     const Selection& selection) {
  const Backend* backend = find_backend(selection.chosen);
  if (selection.engine != Engine::fewbit || backend == nullptr) return {};
  std::vector<RunVariant> out;
  for (const std::int64_t tokens : {1, 16, 512}) {
    out.push_back({tokens, backend->variant(problem, device, tokens)});
  }
  return out;
}

std::string explain(const MoeProblem& problem, const DeviceInfo& device,
                    const Selection& selection) {
  std::string text = problem_text(problem);
  const bool own = selection.engine == Engine::fewbit;
  const Backend* backend = find_backend(selection.chosen);
  fmt::format_to(std::back_inserter(text), "device   {}\nchosen   {}\n", device_text(device),
                 chosen_text(selection));
  if (backend != nullptr) {
    fmt::format_to(std::back_inserter(text), "numerics {}\nlayouts  {}\n", selection.numerics,
                   planned_layouts(*backend, problem));
  }
  text += own ? "backends, best first\n"
              : fmt::format("backends of {}, in its order; not run here\n",
                            engine_name(selection.engine));
  for (const Candidate& candidate : selection.candidates) {
    text += candidate_text(candidate, selection);
  }
  const std::vector<RunVariant> variants = run_variants(problem, device, selection);
  if (!variants.empty()) text += "variants\n";
  for (const RunVariant& of : variants) {
    fmt::format_to(std::back_inserter(text), "  {:>3} token{}  {}\n", of.tokens,
                   of.tokens == 1 ? " " : "s", of.text);
  }
  return text;
}

}  // namespace fewbit
