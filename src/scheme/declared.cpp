// SPDX-License-Identifier: Apache-2.0
#include "scheme/declared.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

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

constexpr std::string_view block_keys[] = {"quantization_config", "compression_config",
                                           "quant_config"};

// Weights of which some are left out, so that others stand elsewhere.
bool is_sparse(const Json* block) {
  const Json* format = block != nullptr ? block->find("format") : nullptr;
  return format != nullptr && (format->as_string() == nullptr || *format->as_string() != "dense");
}

// An object inside config.json, and the path of its keys.
struct Section {
  const Json* object = nullptr;
  std::string path;  // "text_config."
};

// config.json and the parts of a model that it is made of, outer ones first: a method may be told
// in any of them.
std::vector<Section> sections_of(const Json& config) {
  constexpr int deepest = 3;
  std::vector<Section> sections = {{&config, ""}};
  std::size_t begin = 0;
  for (int depth = 0; depth < deepest; ++depth) {
    const std::size_t end = sections.size();
    for (; begin < end; ++begin) {
      const Json::Object* members = sections[begin].object->as_object();
      if (members == nullptr) continue;
      const std::string path = sections[begin].path;
      for (const auto& [name, value] : *members) {
        const bool is_block =
            std::find(std::begin(block_keys), std::end(block_keys), name) != std::end(block_keys);
        if (value.is_object() && !is_block) sections.push_back({&value, path + name + "."});
      }
    }
  }
  return sections;
}

void declare_config_json(Declared& declared, const std::shared_ptr<const Json>& file) {
  for (const Section& section : sections_of(*file)) {
    for (const std::string_view key : block_keys) {
      declare_block(declared, file, section.object->find(key),
                    "config.json " + section.path + std::string(key));
    }
    if (const Json* sparsity = section.object->find("sparsity_config"); is_sparse(sparsity)) {
      declare_block(declared, file, sparsity, "config.json " + section.path + "sparsity_config");
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

bool stores_decoded(const Declaration& declaration) {
  const Json* format = declaration.block->find("packing_format");
  const std::string* text = format != nullptr ? format->as_string() : nullptr;
  if (declaration.producer != Producer::auto_round || text == nullptr) return false;
  const std::string name = lower_ascii(*text);
  return name == "auto_round:fake" || name == "fake";
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
