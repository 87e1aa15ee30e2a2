// SPDX-License-Identifier: Apache-2.0
// GPTQ, AWQ and AutoRound with integer codes in words. They use the same tensor names, so one
// reader decides between them: by what the shapes allow, and by the config where they allow more.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/integer_config.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/integer_zeros.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/passing_tensor.hpp"

namespace fewbit {
namespace {

constexpr std::string_view own_suffixes[] = {"qweight", "qzeros", "scales", "g_idx"};

bool is_ours(const Draft& draft) {
  if (!draft.has("qweight")) return false;
  return std::all_of(draft.module.parts.begin(), draft.module.parts.end(), [](const auto& part) {
    return !is_quantization_suffix(part.suffix) ||
           std::find(std::begin(own_suffixes), std::end(own_suffixes), part.suffix) !=
               std::end(own_suffixes);
  });
}

Packing layout_of(Packing packing) {
  return packing == Packing::words_k_minus ? Packing::words_k : packing;
}

bool writes(Producer producer, Packing layout) {
  switch (producer) {
    case Producer::gptq:
      return layout == Packing::words_k;
    case Producer::awq:
      return layout != Packing::words_k;
    default:
      return layout == Packing::words_k || layout == Packing::words_n;
  }
}

// What stands in the place of a layout that no shapes confirm.
Packing usual_layout(const IntegerConfig& config, const Draft& draft) {
  if (config.packing) return layout_of(*config.packing);
  if (config.producer != Producer::awq) return Packing::words_k;
  return draft.tensor("qweight")->dtype == DType::i16 ? Packing::shorts_gemv : Packing::words_n;
}

struct Choice {
  IntegerFit fit;
  std::string refusal;
};

std::string list_text(const std::vector<IntegerFit>& fits) {
  std::string text;
  for (const IntegerFit& fit : fits) text += (text.empty() ? "" : " or ") + integer_fit_text(fit);
  return text;
}

Choice choose_among(const std::vector<IntegerFit>& fits) {
  if (fits.size() == 1) return {fits.front(), ""};
  return {fits.front(),
          "the shapes fit more than one layout and no config decides: " + list_text(fits)};
}

Choice choose(const Draft& draft, const IntegerConfig* config, const IntegerHints& hints) {
  std::vector<IntegerFit> fits = integer_fits(draft, hints);
  if (config != nullptr) {
    std::vector<IntegerFit> declared = fits;
    std::erase_if(declared, [&](const IntegerFit& fit) {
      return config->packing ? fit.packing != layout_of(*config->packing)
                             : !writes(config->producer, fit.packing);
    });
    if (!declared.empty()) return choose_among(declared);
  }
  if (!fits.empty()) return choose_among(fits);
  if (config != nullptr) {
    Choice choice{nearest_integer_fit(draft, usual_layout(*config, draft), hints), ""};
    if (hints.bits && choice.fit.bits != *hints.bits) {
      choice.refusal = fmt::format("{} of {} bits is not readable", producer_name(config->producer),
                                   *hints.bits);
    }
    return choice;
  }
  if (draft.has("g_idx")) return {nearest_integer_fit(draft, Packing::words_k, hints), ""};
  return {nearest_integer_fit(draft, Packing::words_n, hints),
          "the shapes fit neither GPTQ nor AWQ, and no config says which it is"};
}

DType unsigned_type(int bits) {
  return bits == 2 ? DType::u2 : bits == 3 ? DType::u3 : bits == 8 ? DType::u8 : DType::u4;
}

// Zero points of words along k: constant where symmetry is stated or every stored one agrees.
std::string settle_zeros(const Inventory& inventory, const Draft& draft, const IntegerFit& fit,
                         std::optional<Packing> packing, std::optional<bool> symmetric,
                         Scheme& scheme) {
  scheme.packing = packing.value_or(Packing::words_k_minus);
  scheme.zero_point = 1 << (fit.bits - 1);
  const TensorInfo* qzeros = draft.tensor("qzeros");
  const bool stored = qzeros != nullptr && qzeros->bytes > 0;
  if (!stored) {
    scheme.zero_points = !symmetric.value_or(true);  // and missing, which validate() reports
    return "";
  }
  if (packing && symmetric) {
    scheme.zero_points = !*symmetric;
    return "";
  }
  const PassingTensor zeros(*inventory.checkpoint, *qzeros);
  const ZeroFields fields = count_zero_fields(zeros.view(), fit.n, fit.bits);
  if (!packing && fields.symmetric_as_is()) scheme.packing = Packing::words_k;
  if (fields.symmetric_as_is() || fields.symmetric_minus() || symmetric.value_or(false)) return "";
  scheme.zero_points = true;
  if (packing) return "";
  return "asymmetric zero points, and no config says whether they are stored one too small";
}

// What the config says of the order; what g_idx holds is read of all modules later.
std::string settle_order(const Draft& draft, const IntegerFit& fit, std::optional<bool> stated,
                         Scheme& scheme) {
  const bool one_group = fit.group_size == 0 || fit.group_size >= fit.k;
  if (!stated.value_or(false)) return "";
  if (draft.has("g_idx")) {
    scheme.act_order = ActOrder::group;
    return "";
  }
  if (one_group) return "";
  return "desc_act is true, but there is no g_idx that says the group of each column";
}

Producer producer_of(const IntegerConfig* config, const IntegerFit& fit) {
  if (config != nullptr && writes(config->producer, fit.packing)) return config->producer;
  return fit.packing == Packing::words_k ? Producer::gptq : Producer::awq;
}

// What the config says of a module of this layout; nothing when it is another producer's.
struct Stated {
  std::optional<Packing> packing;
  IntegerSpec spec;
  std::string obstacle;
};

Stated stated_for(const IntegerConfig* config, const IntegerSpec& spec, const IntegerFit& fit) {
  if (config == nullptr || !writes(config->producer, fit.packing)) return {};
  Stated out{std::nullopt, spec, config->obstacle};
  if (config->packing && layout_of(*config->packing) == fit.packing) out.packing = config->packing;
  return out;
}

// AWQ stores zero points as they are, also where all are 8; GEMV-fast multiplied by their scale.
void set_awq_zeros(const Draft& draft, const IntegerFit& fit, const IntegerSpec& spec,
                   Scheme& scheme) {
  const bool fast = fit.packing == Packing::shorts_gemv;
  scheme.packing = fit.packing;
  scheme.zero_points = !fast && (draft.has("qzeros") || !spec.symmetric.value_or(true));
  scheme.zero_point = fast ? 0 : 8;
}

Scheme scheme_of(Producer producer, const IntegerFit& fit, const TensorInfo* scales) {
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = unsigned_type(fit.bits);
  scheme.scale = ScaleSpec{scales != nullptr ? scales->dtype : DType::f16,
                           Granularity{1, fit.group_size}, false, ScaleDirection::multiply};
  return scheme;
}

void claim_module(const Inventory& inventory, const IntegerConfig* config, Draft& draft) {
  const IntegerSpec spec = config != nullptr ? spec_of(*config, draft.module.name) : IntegerSpec{};
  const Choice choice = choose(draft, config, {spec.bits, spec.group_size});
  const IntegerFit& fit = choice.fit;
  const Stated stated = stated_for(config, spec, fit);
  Scheme scheme = scheme_of(producer_of(config, fit), fit, draft.tensor("scales"));
  std::vector<std::string> reasons = {stated.obstacle, choice.refusal};
  if (const Shape& shape = draft.tensor("qweight")->shape; shape.size() == 3) {
    reasons = {fmt::format("qweight {} of stacked experts is not readable", shape_text(shape))};
  }
  if (draft.has("weight")) reasons.insert(reasons.begin(), "both weight and qweight are stored");
  if (fit.packing == Packing::words_k) {
    reasons.push_back(
        settle_zeros(inventory, draft, fit, stated.packing, stated.spec.symmetric, scheme));
  } else {
    set_awq_zeros(draft, fit, stated.spec, scheme);
  }
  reasons.push_back(settle_order(draft, fit, stated.spec.act_order, scheme));
  const auto reason = std::find_if(reasons.begin(), reasons.end(),
                                   [](const std::string& text) { return !text.empty(); });
  draft.module.n = fit.n;
  draft.module.k = fit.k;
  draft.refuse(scheme, reason == reasons.end() ? std::string() : *reason);
}

}  // namespace

void claim_integer_words(Inventory& inventory) {
  // With an unknown method nothing is sure.
  const Declaration* first = inventory.declared.first();
  if (first != nullptr && first->producer == Producer::unknown) return;
  const std::optional<IntegerConfig> config = first_integer_config(inventory.declared);
  for (Draft& draft : inventory.drafts) {
    if (!draft.claimed && is_ours(draft)) {
      claim_module(inventory, config ? &*config : nullptr, draft);
    }
  }
}

}  // namespace fewbit
