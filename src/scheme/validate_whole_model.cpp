// SPDX-License-Identifier: Apache-2.0
// What no model with experts, and no language model as a whole, can be without.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

#include "core/text_search.hpp"
#include "scheme/family_parts.hpp"
#include "scheme/layer_slots.hpp"
#include "scheme/model_hints.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// What the config says of it, at the top or in the section of the language model.
class Config {
 public:
  explicit Config(const Checkpoint& checkpoint) {
    const auto file = checkpoint.json_file("config.json");
    if (!file || *file == nullptr) return;
    file_ = *file;
    sections_.push_back(file_.get());
    for (const std::string_view name : {"text_config", "llm_config", "language_config"}) {
      if (const Json* section = file_->find(name)) sections_.push_back(section);
    }
  }

  std::optional<std::int64_t> number(std::initializer_list<std::string_view> keys) const {
    for (const Json* section : sections_) {
      for (const std::string_view key : keys) {
        const Json* value = section->find(key);
        if (const auto found = value != nullptr ? value->as_int64() : std::nullopt) return found;
      }
    }
    return std::nullopt;
  }
  // Told to be false, and nowhere true.
  bool untied() const {
    bool told = false;
    for (const Json* section : sections_) {
      const Json* value = section->find("tie_word_embeddings");
      const auto tied = value != nullptr ? value->as_bool() : std::nullopt;
      if (tied == true) return false;
      told = told || tied == false;
    }
    return told;
  }
  bool generates() const {
    const Json* names = sections_.empty() ? nullptr : sections_.front()->find("architectures");
    const Json::Array* list = names != nullptr ? names->as_array() : nullptr;
    const std::string* name =
        list != nullptr && list->size() == 1 ? list->front().as_string() : nullptr;
    return name != nullptr && name->ends_with("ForCausalLM");
  }
  // Empty where no section has a text there.
  std::string text(std::string_view key) const {
    for (const Json* section : sections_) {
      const Json* value = section->find(key);
      if (value != nullptr && value->as_string() != nullptr) return *value->as_string();
    }
    return "";
  }
  std::optional<bool> flag(std::string_view key) const {
    for (const Json* section : sections_) {
      const Json* value = section->find(key);
      const auto found = value != nullptr ? value->as_bool() : std::nullopt;
      if (found) return found;
    }
    return std::nullopt;
  }
  // The family that has the part; empty where none has.
  std::string family_with(FamilyPart part) const {
    for (const Json* section : sections_) {
      std::string type = section->string_at("model_type");
      if (family_has(type, part)) return type;
    }
    return "";
  }

 private:
  std::shared_ptr<const Json> file_;
  std::vector<const Json*> sections_;
};

struct Experts {
  const Module* example = nullptr;
  std::int64_t count = 0;
  bool router = false;
  bool shared = false;
  bool shared_gate = false;
  bool correction = false;
  bool router_bias = false;
  bool attention = false;
  bool sinks = false;
};

// Keys of few heads, or what a linear attention mixes, may have as many rows as there are experts.
bool is_of_attention(const std::string& slot, const Module& module) {
  return module.role == Role::q_proj || module.role == Role::k_proj ||
         module.role == Role::v_proj || module.role == Role::o_proj ||
         module.role == Role::attention_other ||
         contains_any(slot, {"attn", "attention", "mamba", "ssm", "conv"});
}

// Families have names of their own for a router; all have one row an expert.
bool is_router(const std::string& slot, const Module& module, std::int64_t experts) {
  if (module.role == Role::router) return true;
  const bool part = module.role == Role::gate_proj || module.role == Role::gate_up_proj ||
                    contains_text(slot, "share") || contains_text(slot, "shexp");
  if (part || module.expert != -1 || is_of_attention(slot, module)) return false;
  return contains_any(slot, {"router", "gating", "classifier"}) ||
         (module.k > 0 && module.n == experts);
}

// One more than the highest number of an expert, by layer.
std::map<int, std::int64_t> expert_counts(const Identified& identified) {
  std::map<int, std::int64_t> counts;
  for (const Module& module : identified.modules) {
    if (module.expert < 0) continue;
    std::int64_t& count = counts[module.layer];
    count = std::max<std::int64_t>(count, std::int64_t{module.expert} + 1);
  }
  return counts;
}

Experts experts_of(const Slots& slots, std::int64_t numbered) {
  Experts out;
  for (const auto& [slot, module] : slots) {
    if (module->expert == -1 || (module->role != Role::up_proj && module->role != Role::gate_proj &&
                                 module->role != Role::gate_up_proj)) {
      continue;
    }
    if (out.example == nullptr) out.example = module;
    out.count = std::max(out.count, module->experts);
  }
  if (out.example == nullptr) return out;
  if (out.example->expert >= 0) out.count = std::max(out.count, numbered);
  for (const auto& [slot, module] : slots) {
    const bool router = is_router(slot, *module, out.count);
    const bool gate = contains_any(slot, {"shared_expert_gate", "gate_inp_shexp"});
    const bool bias = slot.ends_with("bias");
    out.router = out.router || router;
    out.shared_gate = out.shared_gate || gate;
    out.shared = out.shared || (!gate && contains_any(slot, {"share", "shexp"}));
    out.router_bias = out.router_bias || module->role == Role::router_bias || (router && bias);
    out.correction =
        out.correction || module->role == Role::router_bias || (router && bias) ||
        (bias && !is_projection(module->role) && !is_of_attention(slot, *module)) ||
        contains_any(slot, {"correction_bias", "expert_bias", "moe_statics", "probs_b", "tid2eid"});
    out.attention = out.attention || module->role == Role::o_proj;
    out.sinks = out.sinks || contains_text(slot, "sinks");
  }
  return out;
}

void add(Validation& validation, Role role, Level level, std::string where, std::string found,
         std::string expected) {
  validation.groups.add(
      role, {level, "tensor-missing", std::move(where), std::move(found), std::move(expected)});
}

struct Stated {
  std::int64_t shared = 0;
  std::int64_t experts = 0;
  // Why there must be one; empty where there need not.
  std::string shared_expert;
  std::string shared_gate;
  std::string correction;
  std::string router_bias;
  std::string sinks;
};

std::string because(std::string_view key, std::string_view value) {
  return value.empty() ? std::string() : fmt::format("one, for {} is {}", key, value);
}

// Of what is added to the scores; some releases of a family say that they have none.
std::string why_correction(const Config& config) {
  if (config.text("topk_method") == "noaux_tc") return because("topk_method", "noaux_tc");
  for (const std::string_view key : {"use_routing_bias", "moe_router_enable_expert_bias"}) {
    const auto flag = config.flag(key);
    if (flag) return because(key, *flag ? "true" : "");
  }
  const bool softmax = config.text("scoring_func") == "softmax" ||
                       config.text("moe_router_activation_func") == "softmax";
  if (softmax || !config.text("topk_method").empty() || config.flag("moe_use_aux_free") == false) {
    return "";
  }
  return because("model_type", config.family_with(FamilyPart::choice_bias));
}

std::string why_correction(const GgufMetadata& metadata, std::int64_t gating) {
  const std::string_view architecture = metadata.architecture().value_or("");
  const bool always = architecture == "glm4moe" || architecture == "minimax-m2";
  const bool sigmoid = architecture == "deepseek2" && gating == 2;
  return always || sigmoid ? because("general.architecture", architecture) : std::string();
}

Stated stated_of(const Checkpoint& checkpoint) {
  Stated out;
  if (const GgufMetadata* metadata = checkpoint.gguf_metadata()) {
    const auto number = [&](std::string_view key) {
      const GgufValue* value = metadata->find_of_architecture(key);
      return value != nullptr ? value->as_int64().value_or(0) : 0;
    };
    out.shared = number("expert_shared_count");
    out.experts = number("expert_count");
    out.correction = why_correction(*metadata, number("expert_gating_func"));
    return out;
  }
  const Config config(checkpoint);
  out.shared = config.number({"n_shared_experts"}).value_or(0);
  out.experts = config.number({"n_routed_experts", "num_experts", "num_local_experts"}).value_or(0);
  out.correction = why_correction(config);
  if (config.number({"shared_expert_intermediate_size"}) != 0) {
    out.shared_expert = because("model_type", config.family_with(FamilyPart::shared_expert));
    out.shared_gate = because("model_type", config.family_with(FamilyPart::shared_expert_gate));
  }
  out.router_bias = because("model_type", config.family_with(FamilyPart::router_bias));
  out.sinks = because("model_type", config.family_with(FamilyPart::sinks));
  return out;
}

void check_layer(Validation& validation, const Stated& stated, const std::string& where,
                 const Experts& experts) {
  if (!experts.router) {
    add(validation, Role::router, Level::error, where, "experts without a router",
        "a router: nothing chooses among them");
  }
  // Some exporters make the shared experts more of the routed ones.
  const bool all = stated.experts > 0 && experts.count <= stated.experts;
  if (!experts.shared && stated.shared > 0 && all) {
    add(validation, Role::shared_up_proj, Level::error, where, "no shared experts",
        fmt::format("{} by the config", stated.shared));
  }
  const auto need = [&](bool there, const std::string& why, Role role, std::string_view what) {
    if (there || why.empty()) return;
    add(validation, role, Level::error, where, fmt::format("no {}", what), why);
  };
  need(experts.correction, stated.correction, Role::router_bias,
       "e_score_correction_bias beside the router");
  need(experts.shared || !all, stated.shared_expert, Role::shared_up_proj, "shared expert");
  need(experts.shared_gate || !experts.shared, stated.shared_gate, Role::shared_expert_gate,
       "gate of the shared expert");
  need(experts.router_bias || !experts.router, stated.router_bias, Role::router,
       "bias of the router");
  need(experts.sinks || !experts.attention, stated.sinks, Role::attention_other,
       "sinks of the attention");
}

bool is_norm_name(std::string_view name) {
  const std::string_view last = split_dots(name).back();
  return contains_text(last, "norm") || contains_text(last, "ln");
}

// Outside of layers, of the language model.
struct Outer {
  bool embedding = false;
  bool head = false;
  bool norm = false;
  bool prefixed = false;  // a head stands beside the model, not in a bare one
  bool draft = false;     // of another model, whose embedding and head it takes
  bool encoder = false;   // what is decoded may be no words
};

Outer outer_of(const Identified& identified) {
  Outer out;
  for (const Module& module : identified.modules) {
    if (module.layer >= 0) {
      out.encoder = out.encoder || contains_any(module.name, {"encoder", "cross_att"});
      out.prefixed = out.prefixed || !module.name.starts_with("layers.");
      continue;
    }
    if (outside_language_model(module.name)) continue;
    const std::string_view name = module.name;
    out.encoder = out.encoder || contains_text(name, "encoder");
    out.embedding = out.embedding || contains_any(name, {"emb", "wte", "tok"});
    out.head =
        out.head || module.role == Role::head || contains_any(name, {"head", "out", "score"});
    out.norm = out.norm || is_norm_name(name);
    const std::string_view last = split_dots(name).back();
    out.draft =
        out.draft || last == "fc" || last == "d2t" || last == "t2d" || last == "pre_projection";
  }
  return out;
}

void check_outer(Validation& validation, const std::string& path, bool norms) {
  const Outer outer = outer_of(validation.identified);
  if (outer.draft || (outer.encoder && path.ends_with("decoder.layers"))) return;
  if (!outer.embedding) {
    add(validation, Role::embedding, Level::warning, "the model", "no embedding",
        "one: all layers are there");
  }
  if (!outer.norm && norms) {
    add(validation, Role::norm, Level::warning, "the model", "no norm behind the layers",
        "one: all layers are there, and they have norms");
  }
  const Config config(validation.checkpoint);
  // An embedding model may be saved with the name of the language model that it was.
  const auto modules = validation.checkpoint.json_file("modules.json");
  const bool other_use = !modules || *modules != nullptr;
  if (outer.head || !outer.prefixed || !config.untied() || !config.generates() || other_use) return;
  add(validation, Role::head, Level::warning, "the model", "no output head",
      "one: tie_word_embeddings is false");
}

}  // namespace

void validate_whole_model(Validation& validation, const ModelHints& hints) {
  // Without it, single layers and matrices may be all that is wanted.
  if (!hints.num_layers) return;
  const Stated stated = stated_of(validation.checkpoint);
  std::map<int, std::int64_t> counts = expert_counts(validation.identified);
  for (const auto& [path, stack] : slots_of(validation.identified)) {
    std::int64_t layers = 0;
    bool norms = false;
    bool attention = false;
    bool draft = false;  // a token-prediction layer released alone
    for (const auto& [number, slots] : stack) {
      if (number >= *hints.num_layers) continue;
      ++layers;
      bool normed = false;
      bool attended = false;
      for (const auto& [slot, module] : slots) {
        normed = normed || module->role == Role::norm;
        draft = draft || contains_any(slot, {"eh_proj", "enorm", "nextn"});
        attended = attended || module->role == Role::o_proj ||
                   module->role == Role::attention_other || module->role == Role::q_proj;
      }
      attention = attention || attended;
      norms = norms || normed;
      const Experts experts = experts_of(slots, counts[number]);
      // Experts alone are no model.
      if (experts.example != nullptr && (normed || (attended && experts.shared))) {
        check_layer(validation, stated, fmt::format("{}.{}", path, number), experts);
      }
    }
    const auto empty = static_cast<std::int64_t>(hints.empty_layers.size());
    if (is_main_stack(path) && attention && !draft && layers + empty >= *hints.num_layers)
      check_outer(validation, path, norms);
  }
}

}  // namespace fewbit
