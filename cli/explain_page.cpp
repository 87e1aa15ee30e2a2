// SPDX-License-Identifier: Apache-2.0
#include "explain_page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend_splits.hpp"
#include "command.hpp"
#include "core/counted.hpp"
#include "problem_options.hpp"
#include "select/layer_problem.hpp"
#include "select/run_variants.hpp"
#include "select/select.hpp"

namespace fewbit::cli {
namespace {

std::string name_of(const LayerAnswer& answer) {
  if (answer.layers.size() < 2) return answer.whole.where;
  return "layers " + layers_text(answer.layers);
}

// "160 on 3 ranks, 144 on 2"
std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (std::size_t i = 0; i < sizes.size();) {
    std::size_t end = i;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    text += fmt::format("{}{} on {}", i == 0 ? "" : ", ", sizes[i],
                        i == 0 ? counted(end - i, "rank") : std::to_string(end - i));
    i = end;
  }
  return text;
}

std::string shares_text(const LayerAnswer& answer, const Parallel& parallel) {
  if (parallel.tensor == 1 && parallel.expert == 1) return "";
  const RankShares& shares = answer.decision.shares;
  const bool padded = shares.features.back() < shares.intermediate_size.back();
  return fmt::format("shares   intermediate {}{}; experts {}\n",
                     sizes_text(shares.intermediate_size),
                     padded ? fmt::format(", the last padded from {}", shares.features.back()) : "",
                     sizes_text(shares.num_experts));
}

// What `prepare` does with the model: writes for backends, or why it refuses.
struct Preparation {
  std::string backends;
  std::string refused;
};

std::string why_refused(const LayerAnswer& answer) {
  const LayerDecision& decision = answer.decision;
  if (decision.refused) {
    const std::string none = none_of_them_text(decision.selection);
    const bool of_all = decision.refused->what.starts_with(none);
    return of_all ? none + decision.legal_ranks : decision.refused->what;
  }
  return decision.why_unprepared();
}

Preparation preparation_of(const Answer& answer) {
  Preparation out;
  const std::string& first = answer.layers.front().decision.selection.chosen;
  const std::string& of_model = answer.layers.front().decision.of_model;
  if (!of_model.empty()) return {.backends = "", .refused = of_model};
  bool one = true;
  for (const LayerAnswer& layers : answer.layers) {
    const std::string why = why_refused(layers);
    if (!why.empty()) return {.backends = "", .refused = name_of(layers) + ": " + why};
    one = one && layers.decision.selection.chosen == first;
  }
  if (!answer.unknown.empty()) return {.backends = "", .refused = answer.unknown};
  if (one) return {.backends = first, .refused = ""};
  for (const LayerAnswer& layers : answer.layers) {
    out.backends += fmt::format("{}{} ({})", out.backends.empty() ? "" : ", ",
                                layers.decision.selection.chosen, name_of(layers));
  }
  // Only fewbit's own are chosen layer by layer.
  if (answer.engine == Engine::fewbit) return out;
  return {.backends = "",
          .refused = "no one backend is chosen for all layers: " + out.backends +
                     "; --backend forces one"};
}

std::string preparation_text(const Answer& answer) {
  if (!answer.preparable) return "";
  const Preparation what = preparation_of(answer);
  if (!what.refused.empty()) return fmt::format("prepare  refuses it: {}\n", what.refused);
  const bool own = answer.engine == Engine::fewbit;
  return fmt::format("prepare  writes it {} {}\n", own ? "for" : "with --backend", what.backends);
}

std::string layers_page(const LayerAnswer& answer, const Answer& of) {
  MoeProblem share = answer.decision.share;
  if (answer.layers.size() > 1) share.where = name_of(answer) + ", which are alike";
  return explain(share, of.device, answer.decision.selection) + shares_text(answer, of.parallel) +
         splits_by_backend_text(answer.whole, of.device, of.engine);
}

Json shares_json(const RankShares& shares) {
  Json out;
  out.set("features", list_json(shares.features));
  out.set("intermediate_size", list_json(shares.intermediate_size));
  out.set("num_experts", list_json(shares.num_experts));
  return out;
}

Json layers_json(const LayerAnswer& answer, const Answer& of) {
  Json out = selection_json(answer.decision.selection);
  out.set("layer", answer.whole.where);
  if (!answer.layers.empty()) out.set("layers", list_json(answer.layers));
  out.set("problem", problem_json(answer.decision.share));
  out.set("variants", variants_json(answer.decision.share, of.device, answer.decision.selection));
  out.set("shares", shares_json(answer.decision.shares));
  out.set("splits", splits_by_backend_json(answer.whole, of.device, of.engine));
  if (answer.decision.refused) out.set("error", error_json(*answer.decision.refused));
  return out;
}

Json preparation_json(const Answer& answer) {
  const Preparation what = preparation_of(answer);
  Json out;
  out.set("writes", what.refused.empty());
  out.set(what.refused.empty() ? "backends" : "refused",
          what.refused.empty() ? what.backends : what.refused);
  return out;
}

}  // namespace

Json variants_json(const MoeProblem& problem, const DeviceInfo& device,
                   const Selection& selection) {
  Json list{Json::Array{}};
  for (const RunVariant& variant : run_variants(problem, device, selection)) {
    Json entry;
    entry.set("tokens", variant.tokens);
    entry.set("text", variant.text);
    list.push_back(entry);
  }
  return list;
}

const LayerAnswer* refused_layers(const Answer& answer) {
  const auto refused = std::ranges::find_if(
      answer.layers, [](const LayerAnswer& one) { return one.decision.refused.has_value(); });
  return refused == answer.layers.end() ? nullptr : &*refused;
}

std::string answer_text(const Answer& answer) {
  std::string text;
  for (const LayerAnswer& one : answer.layers) {
    text += (text.empty() ? "" : "\n") + layers_page(one, answer);
  }
  if (answer.splits) {
    text += split_line("TP", answer.splits->tensor, answer.parallel.tensor) +
            split_line("EP", answer.splits->expert, answer.parallel.expert);
  }
  return text + preparation_text(answer);
}

Json answer_json(const Answer& answer) {
  Json out = layers_json(answer.layers.front(), answer);
  out.set("device", answer.device.name);
  Json others{Json::Array{}};
  for (std::size_t i = 1; i < answer.layers.size(); ++i) {
    others.push_back(layers_json(answer.layers[i], answer));
  }
  if (answer.layers.size() > 1) out.set("other_layers", others);
  if (answer.splits) {
    out.set("model_splits",
            verdicts_json(*answer.splits, answer.parallel.tensor, answer.parallel.expert));
  }
  if (answer.preparable) out.set("prepare", preparation_json(answer));
  return out;
}

}  // namespace fewbit::cli
