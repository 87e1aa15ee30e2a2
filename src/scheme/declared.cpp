// SPDX-License-Identifier: Apache-2.0
#include "scheme/declared.hpp"

#include <algorithm>
#include <utility>

#include "core/ascii.hpp"
#include "scheme/config_section.hpp"

namespace fewbit {
namespace {

constexpr std::pair<std::string_view, Producer> methods[] = {
    {"compressed-tensors", Producer::compressed_tensors},
    {"compressed_tensors", Producer::compressed_tensors},
    {"gptq", Producer::gptq},
    {"gptq_marlin", Producer::gptq},
    {"marlin", Producer::gptq},
    {"bitblas", Producer::gptq},
    {"awq", Producer::awq},
    {"awq_marlin", Producer::awq},
    {"auto-round", Producer::auto_round},
    {"auto_round", Producer::auto_round},
    {"intel/auto-round", Producer::auto_round},
    {"fp8", Producer::fp8},
    {"fbgemm_fp8", Producer::fp8},
    {"mxfp4", Producer::mxfp4},
    {"quark", Producer::quark},
    {"bitsandbytes", Producer::bitsandbytes},
    {"hqq", Producer::hqq},
    {"torchao", Producer::torchao},
    {"exl2", Producer::exl2},
    {"exl3", Producer::exl3},
    {"gguf", Producer::gguf},
    {"bitnet", Producer::ternary},
};

Producer producer_of_method(const std::string& method) {
  const std::string lower = lower_ascii(method);
  if (lower.starts_with("modelopt")) return Producer::modelopt;
  for (const auto& [name, producer] : methods) {
    if (name == lower) return producer;
  }
  return Producer::unknown;
}

void declare_block(Declared& declared, const std::shared_ptr<const Json>& file, const Json* block,
                   std::string where) {
  if (block == nullptr || block->is_null()) return;
  if (const Json::Object* members = block->as_object(); members != nullptr && members->empty()) {
    return;
  }
  Declaration out{Producer::unknown, "", std::move(where), file, block};
  // A bare "gptq" says as much as the tensors need.
  if (const std::string* name = block->as_string()) {
    out.producer = producer_of_method(*name);
    out.method = *name;
  }
  const Json* method = block->find("quant_method");
  if (method != nullptr && method->as_string() != nullptr) {
    out.method = *method->as_string();
    out.producer = producer_of_method(out.method);
  } else if (method == nullptr && block->find("quant_algo") != nullptr) {
    out.method = "modelopt";
    out.producer = Producer::modelopt;
  }
  declared.all.push_back(std::move(out));
}

void declare_config_json(Declared& declared, const std::shared_ptr<const Json>& file) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    declare_block(declared, file, file->find(key), "config.json " + std::string(key));
    for (const std::string_view section : {"text_config", "llm_config", "language_config"}) {
      const Json* inner = file->find(section);
      if (inner == nullptr) continue;
      declare_block(declared, file, inner->find(key),
                    "config.json " + std::string(section) + "." + std::string(key));
    }
  }
  // MLX: {"bits", "group_size"} without a method; its top-level copy above says no more.
  const Json* mlx = file->find("quantization");
  if (mlx != nullptr && mlx->find("bits") != nullptr && mlx->find("quant_method") == nullptr) {
    declared.all.insert(declared.all.begin(),
                        {Producer::unknown, "MLX", "config.json quantization", file, mlx});
  }
}

}  // namespace

std::string declared_problem(const Json& block) {
  if (!block.is_object())
    return "is " + value_text(block) + ", expected an object with quant_method";
  const Json* method = block.find("quant_method");
  if (method == nullptr) return "has no quant_method";
  if (method->as_string() == nullptr) {
    return "has quant_method " + value_text(*method) + ", expected a string";
  }
  return method->as_string()->empty() ? "has an empty quant_method" : "";
}

bool Declared::says(Producer producer) const {
  return std::any_of(all.begin(), all.end(),
                     [&](const Declaration& one) { return one.producer == producer; });
}

Result<Declared> read_declared(const Checkpoint& checkpoint) {
  Declared declared;
  FEWBIT_TRY(auto config, checkpoint.json_file("config.json"));
  if (config != nullptr) declare_config_json(declared, config);

  FEWBIT_TRY(auto modelopt, checkpoint.json_file("hf_quant_config.json"));
  if (modelopt != nullptr) {
    const Json* block = modelopt->find("quantization");
    declared.all.push_back({Producer::modelopt, "modelopt", "hf_quant_config.json", modelopt,
                            block != nullptr ? block : modelopt.get()});
  }
  FEWBIT_TRY(auto gptq, checkpoint.json_file("quantize_config.json"));
  if (gptq != nullptr) {
    declared.all.push_back({Producer::gptq, "gptq", "quantize_config.json", gptq, gptq.get()});
  }
  FEWBIT_TRY(auto awq, checkpoint.json_file("quant_config.json"));
  if (awq != nullptr) {
    declared.all.push_back({Producer::awq, "awq", "quant_config.json", awq, awq.get()});
  }
  return declared;
}

}  // namespace fewbit
