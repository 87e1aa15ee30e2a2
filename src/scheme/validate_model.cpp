// SPDX-License-Identifier: Apache-2.0
// Whether the tensors are those of the model that config.json describes: none missing, none that
// the model would leave out, none of another shape.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/unused_tensors.hpp"
#include "scheme/validation.hpp"
#include "scheme/zero_bias.hpp"

namespace fewbit {
namespace {

enum class HeadNorms { none, of_each_head, of_all_heads };
struct Family {
  std::string_view model_type;
  std::string_view mlp;
  HeadNorms head_norms;
};
constexpr Family families[] = {
    {"qwen3_moe", "mlp", HeadNorms::of_each_head},
    {"mixtral", "block_sparse_moe", HeadNorms::none},
    {"olmoe", "mlp", HeadNorms::of_all_heads},
};

struct Wanted {
  std::string module;
  Role role;
  Shape shape;
};

void want_layer(const ModelConfig& c, const Family& family, std::int64_t number,
                std::vector<Wanted>& out) {
  const std::string layer = fmt::format("model.layers.{}.", number);
  const std::string attention = layer + "self_attn.";
  const std::string mlp = fmt::format("{}{}.", layer, family.mlp);
  const std::int64_t q = c.num_heads * c.head_dim;
  const std::int64_t kv = c.num_kv_heads * c.head_dim;
  out.push_back({layer + "input_layernorm", Role::norm, {c.hidden_size}});
  out.push_back({layer + "post_attention_layernorm", Role::norm, {c.hidden_size}});
  out.push_back({attention + "q_proj", Role::q_proj, {q, c.hidden_size}});
  out.push_back({attention + "k_proj", Role::k_proj, {kv, c.hidden_size}});
  out.push_back({attention + "v_proj", Role::v_proj, {kv, c.hidden_size}});
  out.push_back({attention + "o_proj", Role::o_proj, {c.hidden_size, q}});
  if (family.head_norms != HeadNorms::none) {
    const bool each = family.head_norms == HeadNorms::of_each_head;
    out.push_back({attention + "q_norm", Role::norm, {each ? c.head_dim : q}});
    out.push_back({attention + "k_norm", Role::norm, {each ? c.head_dim : kv}});
  }
  if (c.moe_layer[static_cast<std::size_t>(number)]) {
    out.push_back({mlp + "gate", Role::router, {c.num_experts, c.hidden_size}});
    return;
  }
  if (activation_gated(c.activation.kind)) {
    out.push_back({mlp + "gate_proj", Role::gate_proj, {c.intermediate_size, c.hidden_size}});
  }
  out.push_back({mlp + "up_proj", Role::up_proj, {c.intermediate_size, c.hidden_size}});
  out.push_back({mlp + "down_proj", Role::down_proj, {c.hidden_size, c.intermediate_size}});
}

// Layers without any tensor are another rule's finding.
std::vector<Wanted> wanted_modules(const ModelConfig& c, const Family& family,
                                   const Identified& identified) {
  std::int64_t layers = 0;
  for (const Module& module : identified.modules) {
    layers = std::max<std::int64_t>(layers, std::int64_t{module.layer} + 1);
  }
  std::vector<Wanted> out;
  out.push_back({"model.embed_tokens", Role::embedding, {c.vocab_size, c.hidden_size}});
  out.push_back({"model.norm", Role::norm, {c.hidden_size}});
  if (!c.tie_word_embeddings) out.push_back({"lm_head", Role::head, {c.vocab_size, c.hidden_size}});
  for (std::int64_t i = 0; i < std::min(layers, c.num_layers); ++i) want_layer(c, family, i, out);
  return out;
}

Shape shape_of(const Checkpoint& checkpoint, const Module& module) {
  if (module.scheme.quantized()) return {module.n, module.k};
  const TensorInfo* info = checkpoint.find(module.part("weight"));
  return info != nullptr ? info->shape : Shape{};
}

void check_wanted(Validation& validation, const Wanted& wanted) {
  const Module* module = validation.identified.find(wanted.module);
  if (module == nullptr || !has_weight(*module)) {
    validation.groups.add(wanted.role, {Level::error, "tensor-missing", wanted.module + ".weight",
                                        "no tensor", shape_text(wanted.shape) + " by config.json"});
    return;
  }
  if (!module->unreadable.empty()) return;
  const Shape found = shape_of(validation.checkpoint, *module);
  // Same rank, other numbers, and not of the attention: config-size.
  const bool reported = wanted.role != Role::norm && wanted.role != Role::q_proj &&
                        wanted.role != Role::k_proj && wanted.role != Role::v_proj &&
                        wanted.role != Role::o_proj && module->k != 0 &&
                        (module->n != wanted.shape[0] || module->k != wanted.shape[1]);
  if (found == wanted.shape || reported) return;
  validation.add(*module, Level::error, "tensor-shape", std::string(module->part("weight")),
                 shape_text(found), shape_text(wanted.shape) + " by config.json");
}

void check_bias(Validation& validation, const Module& module) {
  const std::string_view bias = module.part("bias");
  if (bias.empty() || module.role == Role::router_bias) return;
  if (has_zero_bias(validation.checkpoint, module)) {
    validation.add(
        module, Level::info, "bias-zero", std::string(bias),
        fmt::format("a bias of {} zeros", std::max<std::int64_t>(module.experts, 1) * module.n),
        "none in this model; zeros change nothing and are left out");
    return;
  }
  validation.add(module, Level::error, "bias-unsupported", std::string(bias), "a bias",
                 "none in this model");
}

bool is_expert(const Module& module) {
  return module.expert != -1 &&
         (module.role == Role::gate_proj || module.role == Role::up_proj ||
          module.role == Role::down_proj || module.role == Role::gate_up_proj);
}

void check_unused(Validation& validation, const ModelConfig& config,
                  const std::vector<Wanted>& wanted) {
  const Identified& identified = validation.identified;
  std::unordered_set<std::string> used;
  const auto use = [&](const Module& module) {
    for (const Module::Part& part : module.parts) {
      if (part.suffix == "weight" || part.suffix == "bias" || is_quantization_suffix(part.suffix)) {
        used.insert(part.tensor);
      }
    }
  };
  for (const Wanted& one : wanted) {
    if (const Module* module = identified.find(one.module)) use(*module);
  }
  for (const Module& module : identified.modules) {
    const bool moe = module.layer >= 0 && module.layer < config.num_layers &&
                     config.moe_layer[static_cast<std::size_t>(module.layer)];
    // What can't be read, and whole layers, are findings of their own.
    if ((moe && is_expert(module)) || !module.unreadable.empty() ||
        module.layer >= config.num_layers) {
      use(module);
    }
  }
  for (const std::string& name : unused_tensors(validation.checkpoint, identified, config, used)) {
    const Module* module = identified.find(split_tensor_name(name).module);
    validation.groups.add(module != nullptr ? module->role : Role::other,
                          {Level::error, "tensor-unexpected", name, "a tensor that is not read",
                           "nothing that model_type " + config.model_type + " leaves out"});
  }
}

// A second half that the activation gates, or none where it does not.
void check_gates(Validation& validation, const ModelConfig& config) {
  const bool gated = activation_gated(config.activation.kind);
  const Module* gate = nullptr;
  const Module* up = nullptr;
  for (const Module& module : validation.identified.modules) {
    if (module.layer < 0 || module.layer >= config.num_layers || !is_expert(module)) continue;
    if (module.role == Role::gate_proj || module.role == Role::gate_up_proj) gate = &module;
    if (module.role == Role::up_proj) up = &module;
  }
  const Module* example = gate != nullptr ? gate : up;
  if (example == nullptr || (gate != nullptr) == gated) return;
  validation.add(*example, Level::error, "activation-gate", example->name,
                 gated ? "no gate_proj" : "a gate",
                 fmt::format("{} for hidden_act {}", gated ? "a gate" : "none",
                             activation_name(config.activation.kind)));
}

void check_experts_present(Validation& validation, const ModelConfig& config) {
  std::vector<bool> found(static_cast<std::size_t>(config.num_layers));
  std::vector<bool> routed(found.size());
  std::int64_t layers = 0;
  for (const Module& module : validation.identified.modules) {
    layers = std::max<std::int64_t>(layers, std::int64_t{module.layer} + 1);
    if (module.layer < 0 || module.layer >= config.num_layers) continue;
    if (is_expert(module)) found[static_cast<std::size_t>(module.layer)] = true;
    if (module.role == Role::router) routed[static_cast<std::size_t>(module.layer)] = true;
  }
  // Of layers with a router beside others with experts, validate_layers() speaks.
  const bool any = std::find(found.begin(), found.end(), true) != found.end();
  for (std::int64_t i = 0; i < std::min(layers, config.num_layers); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (!config.moe_layer[at] || found[at] || (any && routed[at])) continue;
    validation.groups.add(
        Role::up_proj, {Level::error, "experts-missing", fmt::format("layer {}", i), "no experts",
                        fmt::format("{} by config.json", config.num_experts)});
  }
}

void check_extra_layers(Validation& validation, const ModelConfig& config) {
  for (const auto& [number, layer] : extra_layers(validation.identified, config.num_layers)) {
    const std::string expected =
        fmt::format("{} layers by num_hidden_layers of config.json", config.num_layers);
    validation.groups.add(
        Role::other,
        layer.prediction
            ? Finding{Level::info, "layers-prediction", fmt::format("layer {}", number),
                      "a token-prediction layer: " + layer.example, "not used: " + expected}
            : Finding{Level::error, "layers-extra", fmt::format("layer {}", number),
                      "a decoder layer: " + layer.example, expected});
  }
}

}  // namespace

void validate_model(Validation& validation) {
  // The names in GGUF files are not those of the families here.
  if (validation.checkpoint.gguf_metadata() != nullptr) return;
  const Result<ModelConfig> config = read_model_config(validation.checkpoint);
  if (!config) return;
  const auto* const family =
      std::find_if(std::begin(families), std::end(families),
                   [&](const Family& one) { return one.model_type == config->model_type; });
  if (family == std::end(families)) return;
  const std::vector<Wanted> wanted = wanted_modules(*config, *family, validation.identified);
  const bool part = is_part_of_model(validation.checkpoint);
  for (const Wanted& one : wanted) {
    const Module* module = validation.identified.find(one.module);
    if (!part || (module != nullptr && has_weight(*module))) check_wanted(validation, one);
  }
  for (const Module& module : validation.identified.modules) {
    if (module.layer < config->num_layers && !outside_language_model(module.name)) {
      check_bias(validation, module);
    }
  }
  if (!part) {
    check_gates(validation, *config);
    check_experts_present(validation, *config);
  }
  check_unused(validation, *config, wanted);
  check_extra_layers(validation, *config);
}

}  // namespace fewbit
