// SPDX-License-Identifier: Apache-2.0
// Producers that are known by their tensors or by the config, but not decoded. Naming them keeps
// them from being taken for plain weights, or for each other.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/float_types.hpp"
#include "core/quote.hpp"
#include "scheme/modelopt_config.hpp"
#include "scheme/modelopt_formats.hpp"
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
      {Needs{{"_weight_qdata", {}}}, Producer::torchao, DType::u8, {}},
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

// Parts that no layout of their producer has.
std::string misfit_text(Producer producer, const std::string& evidence) {
  if (producer == Producer::unknown) return "quantized in an unknown way: " + evidence;
  return fmt::format("no layout of {} has such parts: {}", producer_name(producer), evidence);
}

void refuse_as(Draft& draft, Producer producer, DType weight) {
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = weight;
  draft.refuse(scheme, named_producer_text(producer));
  if (draft.module.unreadable.empty()) {
    draft.module.unreadable = misfit_text(producer, draft.module.evidence);
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

// What the config says of a method that is not known: the value, and what would be.
std::string unknown_method_text(const Declaration& declaration) {
  constexpr std::string_view known =
      "one of modelopt, compressed-tensors, gptq, awq, auto-round, fp8, mxfp4, quark, "
      "bitsandbytes, "
      "bitnet …";
  if (declaration.method.empty()) {
    return fmt::format("{} {}; quant_method is {}", declaration.where,
                       declared_problem(*declaration.block), known);
  }
  return fmt::format("quant_method {} of {} is not known, expected {}", quote(declaration.method),
                     declaration.where, known);
}

// Why weights that look plain are not taken for it.
std::string plain_looking_text(const Declaration& declaration) {
  std::string named = declaration.producer != Producer::unknown
                          ? named_producer_text(declaration.producer)
                          : named_method_text(declaration.method);
  if (!named.empty()) return named;
  if (declaration.producer == Producer::unknown) return unknown_method_text(declaration);
  return fmt::format(
      "{} says {}, but no tensor is quantized so: the weights would be quantized while loading, or "
      "the config is another checkpoint's",
      declaration.where, quote(declaration.method));
}

// Why parts that no reader took are not read.
std::string own_text(const Declaration& declaration, const Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  if (declaration.producer == Producer::fp8 && weight != nullptr) {
    return fmt::format("weight is {} {}, expected FP8 codes (f8_e4m3 or f8_e5m2) as {} says {}",
                       dtype_name(weight->dtype), shape_text(weight->shape), declaration.where,
                       quote(declaration.method));
  }
  if (declaration.producer == Producer::unknown) return plain_looking_text(declaration);
  std::string named = named_producer_text(declaration.producer);
  return named.empty() ? misfit_text(declaration.producer, draft.module.evidence) : named;
}

bool is_plain(const TensorInfo* tensor) { return is_plain_float(tensor->dtype); }

// Tensors that no plain module has: parts of quantized storage, or values that are no floats. Of a
// producer that is known only those with codes: what else may stand beside plain weights, others
// tell.
bool is_own(const Draft& draft, Producer producer) {
  if (draft.claimed || is_table(draft.module.name)) return false;
  const bool odd = !std::all_of(draft.tensors.begin(), draft.tensors.end(), is_plain);
  if (producer == Producer::unknown) return odd || has_quantization_parts(draft);
  const TensorInfo* weight = draft.tensor("weight");
  return weight != nullptr && !is_plain(weight) && has_quantization_parts(draft);
}

// A linear layer by its name, but no router: tables beside that are the model's own.
bool is_linear_name(std::string_view name) {
  const Role role = find_role(name).role;
  return role == Role::attention_other || (is_projection(role) && role != Role::router);
}

bool claimed_any(const Inventory& inventory) {
  return std::any_of(inventory.drafts.begin(), inventory.drafts.end(), [](const Draft& draft) {
    return draft.claimed && draft.module.scheme.quantized();
  });
}

void refuse(Draft& draft, const Declaration& declaration, std::string why) {
  const TensorInfo* weight = draft.tensor("weight");
  Scheme scheme;
  scheme.producer = declaration.producer;
  scheme.weight = weight != nullptr ? weight->dtype : draft.tensors.front()->dtype;
  draft.refuse(scheme, std::move(why));
}

// The linear layer that a tensor with a name of its own belongs to: "q_proj" of "q_proj.codes".
std::string_view layer_of(const Draft& draft) {
  const std::string_view name = draft.module.name;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return name;
  const std::string_view parent = name.substr(0, dot);
  return is_linear_name(parent) ? parent : name;
}

// Modules with the method's own tensors, and all else that stands beside those in one layer.
std::vector<Draft*> own_drafts(Inventory& inventory, Producer producer) {
  std::unordered_set<std::string_view> layers;
  for (const Draft& draft : inventory.drafts) {
    if (is_own(draft, producer)) layers.insert(layer_of(draft));
  }
  std::vector<Draft*> own;
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || is_table(draft.module.name)) continue;
    if (layers.contains(layer_of(draft))) own.push_back(&draft);
  }
  return own;
}

// Modules with tensors of the method are refused and plain ones are what they are. Where all look
// plain, the linear ones must not pass for 16-bit weights: codes may stand in bf16, or the weights
// be made for quantizing while loading.
void refuse_declared(Inventory& inventory, const Declaration& declaration) {
  const std::vector<Draft*> own = own_drafts(inventory, declaration.producer);
  for (Draft* draft : own) {
    draft->claim({});  // for its evidence
    refuse(*draft, declaration, own_text(declaration, *draft));
  }
  if (!own.empty() || claimed_any(inventory) || !plain_statement(declaration).empty()) return;
  const std::string why = plain_looking_text(declaration);
  for (Draft& draft : inventory.drafts) {
    if (!draft.claimed && is_linear(draft.module)) refuse(draft, declaration, why);
  }
}

// Familiar tensors under a method that nobody knows: not even their values are sure, which may be
// rotated or have other signs.
void refuse_familiar(Inventory& inventory, const Declaration& declaration) {
  for (Draft& draft : inventory.drafts) {
    const Scheme& scheme = draft.module.scheme;
    const bool readable = draft.claimed && scheme.quantized() && draft.module.unreadable.empty();
    if (!readable || inventory.declared.says(scheme.producer)) continue;
    draft.module.unreadable = plain_looking_text(declaration);
  }
}

// An algorithm of ModelOpt that is not known, or no name, over weights that all look plain.
void refuse_unknown_algorithm(Inventory& inventory, const Declaration& declaration) {
  const auto config = read_modelopt_config(declaration);
  if (!config || claimed_any(inventory) || !plain_statement(declaration).empty()) return;
  if (modelopt_algorithm_known(config->algorithm) && !config->odd) return;
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !is_linear(draft.module)) continue;
    refuse(draft, declaration,
           fmt::format("quant_algo {} of {} is {}", config->said, declaration.where,
                       config->odd ? "no name, expected that of an algorithm" : "not known"));
  }
}

}  // namespace

void claim_other_producers(Inventory& inventory) {
  const Declaration* declared = inventory.declared.first();
  if (declared != nullptr && declared->producer == Producer::unknown) {
    refuse_declared(inventory, *declared);
    refuse_familiar(inventory, *declared);
    return;
  }
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !has_quantization_parts(draft)) continue;
    for (const Fingerprint& print : fingerprints()) {
      const bool fp8 = declared != nullptr && declared->producer == Producer::fp8;
      if (!matches(draft, print) || (fp8 && print.producer == Producer::unknown)) continue;
      Producer producer = print.producer;
      for (const Producer other : print.if_declared) {
        if (declared != nullptr && declared->producer == other) producer = other;
      }
      refuse_as(draft, producer, print.weight);
      break;
    }
  }
  if (declared == nullptr) return;
  if (declared->producer == Producer::modelopt) {
    refuse_unknown_algorithm(inventory, *declared);
  } else {
    refuse_declared(inventory, *declared);
  }
}

}  // namespace fewbit
