// SPDX-License-Identifier: Apache-2.0
// Modules that lose more by low precision than they save.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "scheme/model_hints.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

std::uint64_t stored_bytes(const Validation& validation, const Module& module) {
  std::uint64_t bytes = 0;
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = validation.checkpoint.find(part.tensor);
    if (info != nullptr) bytes += info->bytes;
  }
  return bytes;
}

// Compressed keys and values of latent attention.
bool is_latent_projection(const Module& module) {
  const std::string_view last = split_dots(module.name).back();
  return last == "kv_a_proj_with_mqa" || last == "kv_b_proj" || last == "kv_a_proj" ||
         last == "fused_qkv_a_proj_with_mqa";
}

void validate_quantized(Validation& validation, const Module& module) {
  const std::string scheme = scheme_text(module.scheme);
  switch (module.role) {
    case Role::router:
    case Role::shared_expert_gate:
      validation.add(module, Level::warning, "router-quantized", module.name, scheme,
                     "16-bit or 32-bit router weights");
      break;
    case Role::embedding:
    case Role::head:
      if (module.scheme.producer == Producer::gguf || module.k == 0) break;
      validation.add(module, Level::info, "embedding-quantized", module.name,
                     fmt::format("{}: {} bytes instead of {}", scheme,
                                 stored_bytes(validation, module), 2 * module.n * module.k),
                     "16 bits, where the difference is small against the experts");
      break;
    case Role::attention_other:
      if (!is_latent_projection(module) || dtype_bits(module.scheme.weight) > 4) break;
      validation.add(module, Level::warning, "latent-attention-4bit", module.name, scheme,
                     "8 bits or more: every head is expanded from these");
      break;
    default:
      break;
  }
}

// DeepSeek-V4 stores the bias of the choice as its router's own.
void check_own_bias(Validation& validation, const Module& router) {
  const TensorInfo* bias = validation.checkpoint.find(router.part("bias"));
  const std::string type = read_model_hints(validation.checkpoint).model_type;
  if (bias == nullptr || !type.starts_with("deepseek_v4") || bias->dtype == DType::f32) return;
  validation.add(router, Level::warning, "router-bias-rounded", bias->name,
                 std::string(dtype_name(bias->dtype)),
                 "f32: rounding the bias changes which experts are chosen");
}

}  // namespace

void validate_roles(Validation& validation) {
  std::map<std::string, std::int64_t> routers;  // rows by path of the layer
  for (const Module& module : validation.identified.modules) {
    // Of an unknown method it is only said that nothing is sure.
    const bool known = module.scheme.producer != Producer::unknown;
    if (module.scheme.quantized() && known) validate_quantized(validation, module);
    if (module.role == Role::router && module.n > 0) routers[layer_path(module.name)] = module.n;
  }
  for (const Module& module : validation.identified.modules) {
    if (module.role == Role::router) check_own_bias(validation, module);
    if (module.role != Role::router_bias || module.scheme.quantized()) continue;
    if (dtype_bits(module.scheme.weight) < 32) {
      validation.add(module, Level::warning, "router-bias-rounded", module.name,
                     std::string(dtype_name(module.scheme.weight)),
                     "f32: rounding the bias changes which experts are chosen");
    }
    const auto router = routers.find(layer_path(module.name));
    // Some models have a row for each kind of token.
    const std::int64_t experts = module.k > 0 ? module.k : module.n;
    if (router != routers.end() && experts != router->second) {
      validation.add(module, Level::error, "router-bias-shape", module.name,
                     fmt::format("[{}]", experts),
                     fmt::format("[{}], one for each row of the router", router->second));
    }
  }
}

}  // namespace fewbit
