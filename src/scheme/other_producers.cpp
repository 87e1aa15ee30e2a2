// SPDX-License-Identifier: Apache-2.0
// Producers that are known by their tensors but not readable yet. Naming them keeps them from being
// taken for plain weights, or for each other.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/quote.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/named_methods.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

struct Fingerprint {
  // All of these parts, with these types where one is given.
  struct Need {
    std::string_view suffix;
    std::optional<DType> dtype;
  };
  std::vector<Need> needs;
  Producer producer;
  DType weight;
  // Producers that write the same names: the config decides between them.
  std::vector<Producer> if_declared;
};

using Needs = std::vector<Fingerprint::Need>;

const std::vector<Fingerprint>& fingerprints() {
  static const std::vector<Fingerprint> list = {
      {Needs{{"W_q", {}}}, Producer::hqq, DType::u4, {}},
      {Needs{{"trellis", {}}}, Producer::exl3, DType::i16, {}},
      {Needs{{"q_weight", {}}, {"q_invperm", {}}}, Producer::exl2, DType::i32, {}},
      {Needs{{"qweight", {}}, {"wscales", {}}}, Producer::unknown, DType::i32, {}},
      {Needs{{"weight", DType::f8_e4m3}}, Producer::torchao, DType::f8_e4m3, {}},
      {Needs{{"weight", DType::i8}, {"weight_scale", {}}},
       Producer::unknown,
       DType::i8,
       {Producer::compressed_tensors, Producer::quark}},
      {Needs{{"weight", DType::u8}, {"weight_scale", {}}},
       Producer::unknown,
       DType::u8,
       {Producer::quark, Producer::ternary, Producer::auto_round, Producer::compressed_tensors}},
  };
  return list;
}

bool matches(const Draft& draft, const Fingerprint& print) {
  return std::all_of(print.needs.begin(), print.needs.end(), [&](const auto& need) {
    const TensorInfo* tensor = draft.tensor(need.suffix);
    return tensor != nullptr && (!need.dtype || tensor->dtype == *need.dtype);
  });
}

void refuse_as(Draft& draft, Producer producer, DType weight) {
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = weight;
  draft.refuse(scheme, named_producer_text(producer));
  if (producer == Producer::unknown) {
    draft.module.unreadable = "quantized in an unknown way: " + draft.module.evidence;
  }
}

bool has_quantization_parts(const Draft& draft) {
  return std::any_of(draft.module.parts.begin(), draft.module.parts.end(),
                     [](const auto& part) { return is_quantization_suffix(part.suffix); });
}

// A matrix of a linear layer that a quantizer would have changed.
bool is_linear(const Module& module) {
  return module.role != Role::norm && module.role != Role::embedding &&
         module.role != Role::router && module.role != Role::router_bias &&
         module.role != Role::head && module.role != Role::shared_expert_gate;
}

std::string plain_looking_text(const Declaration& declaration) {
  if (declaration.producer != Producer::unknown) return named_producer_text(declaration.producer);
  std::string named = named_method_text(declaration.method);
  if (!named.empty()) return named;
  return fmt::format("quant_method {} of {} is not known",
                     declaration.method.empty() ? "(none)" : quote(declaration.method),
                     declaration.where);
}

// A method whose tensors look plain (codes in bf16, or quantized while loading) must not pass for
// 16-bit weights.
void refuse_plain_looking(Inventory& inventory, const Declaration& declaration) {
  const bool known = declaration.producer != Producer::unknown;
  const std::string why = plain_looking_text(declaration);
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || (known && !is_linear(draft.module))) continue;
    const TensorInfo* weight = draft.tensor("weight");
    Scheme scheme;
    scheme.producer = declaration.producer;
    scheme.weight = weight != nullptr ? weight->dtype : DType::u8;
    draft.refuse(scheme, why);
  }
}

bool claimed_any(const Inventory& inventory) {
  return std::any_of(inventory.drafts.begin(), inventory.drafts.end(),
                     [](const Draft& draft) { return draft.claimed; });
}

}  // namespace

void claim_other_producers(Inventory& inventory) {
  const Declaration* declared = inventory.declared.first();
  // With an unknown method nothing is sure, not even plain values (they may be rotated).
  if (declared != nullptr && declared->producer == Producer::unknown) {
    refuse_plain_looking(inventory, *declared);
    return;
  }
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !has_quantization_parts(draft)) continue;
    for (const Fingerprint& print : fingerprints()) {
      if (!matches(draft, print)) continue;
      Producer producer = print.producer;
      for (const Producer other : print.if_declared) {
        if (declared != nullptr && declared->producer == other) producer = other;
      }
      refuse_as(draft, producer, print.weight);
      break;
    }
  }
  if (declared != nullptr && declared->producer != Producer::modelopt && !claimed_any(inventory)) {
    refuse_plain_looking(inventory, *declared);
  }
}

}  // namespace fewbit
