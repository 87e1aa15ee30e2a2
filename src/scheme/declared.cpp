// SPDX-License-Identifier: Apache-2.0
#include "scheme/declared.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/ascii.hpp"
#include "scheme/config_places.hpp"
#include "scheme/config_section.hpp"
#include "scheme/config_word.hpp"
#include "scheme/layer_file.hpp"
#include "scheme/model_json.hpp"
#include "scheme/nested_block.hpp"
#include "scheme/plain_config.hpp"
#include "scheme/qconfig_file.hpp"

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
    {"mxfp8", Producer::fp8},
    {"w4afp8", Producer::fp8},
    {"mxfp4", Producer::mxfp4},
    {"quark", Producer::quark},
    {"bitsandbytes", Producer::bitsandbytes},
    {"hqq", Producer::hqq},
    {"torchao", Producer::torchao},
    {"exl2", Producer::exl2},
    {"exl3", Producer::exl3},
    {"gguf", Producer::gguf},
    {"bitnet", Producer::ternary},
    {"mlx", Producer::mlx},
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

// Where a block stands inside of it, both are one.
void declare_nested(Declared& declared, const std::shared_ptr<const Json>& file, const Json* block,
                    const std::string& where) {
  const NestedBlock nested = nested_block(*block);
  const bool inside = nested.merged != nullptr;
  const std::size_t before = declared.all.size();
  declare_block(declared, file, inside ? nested.merged.get() : block, where + nested.path);
  if (declared.all.size() == before) return;
  declared.all.back().merged = nested.merged;
  declared.all.back().hidden = nested.hidden;
}

// In a file of its own, or in a block inside.
bool names_method(const Json& file) {
  const NestedBlock nested = nested_block(file);
  const Json* method = (nested.merged != nullptr ? *nested.merged : file).find("quant_method");
  return method != nullptr && !method->is_null();
}

// A file whose name tells the producer, unless it says another one.
void declare_file(Declared& declared, const std::shared_ptr<const Json>& file,
                  const std::string& name, Producer usual, std::string usual_method) {
  if (names_method(*file)) return declare_nested(declared, file, file.get(), name);
  const NestedBlock nested = nested_block(*file);
  const Json* block = nested.merged != nullptr ? nested.merged.get() : file.get();
  // GPTQModel's own key.
  const Json* method = block->find("method");
  const std::string* own = method != nullptr ? method->as_string() : nullptr;
  if (own != nullptr && producer_of_method(*own) != Producer::unknown) {
    usual = producer_of_method(*own);
    usual_method = *own;
  }
  declared.all.push_back({usual, std::move(usual_method), name + nested.path, file, block, nullptr,
                          nested.merged, nested.hidden});
}

// MLX: {"bits", "group_size", "mode"} without a method. The copy beside it has another key; alone,
// its mode tells it.
bool is_mlx(const ConfigPlace& place, const Json::Member& member) {
  const auto& [name, block] = member;
  const bool own = block.find("bits") != nullptr && block.find("quant_method") == nullptr &&
                   block.find("quant_algo") == nullptr;
  if (!own || name == "quantization") return own;
  if (name != "quantization_config" || block.find("group_size") == nullptr) return false;
  const Json* original = place.object->find("quantization");
  const bool copy = original != nullptr && original->is_object() &&
                    original->find("bits") != nullptr && original->find("quant_method") == nullptr;
  return copy || block.find("mode") != nullptr;
}

// AutoRound's block says it already, where MLX is the layout that it wrote.
bool exports_mlx(const Declared& declared) {
  return std::any_of(declared.all.begin(), declared.all.end(), [](const Declaration& one) {
    if (one.producer != Producer::auto_round || !one.block->is_object()) return false;
    const Json* format = one.block->find("packing_format");
    return format != nullptr && format->as_string() != nullptr &&
           format->as_string()->ends_with("mlx");
  });
}

// "quantization" and "quantize" also name what codecs do with sounds and images.
bool is_of_a_codec(const ConfigPlace& place, const Json::Member& member) {
  constexpr std::string_view words[] = {"audio", "codec", "speech", "vocoder", "vision", "image"};
  const bool codec = std::any_of(std::begin(words), std::end(words), [&](std::string_view word) {
    return place.path.find(word) != std::string::npos;
  });
  const auto& [name, value] = member;
  const bool method = value.find("quant_method") != nullptr ||
                      value.find("quant_algo") != nullptr || value.find("bits") != nullptr;
  return codec && (name == "quantization" || name == "quantize") && !method;
}

void declare_member(Declared& declared, const std::shared_ptr<const Json>& file,
                    const ConfigPlace& place, const Json::Member& member,
                    const std::string& source) {
  if (is_of_a_codec(place, member)) return;
  const auto& [name, value] = member;
  const std::string where = source + " " + place.path + name;
  switch (quantization_key(name, value)) {
    case QuantizationKey::none:
      break;
    case QuantizationKey::method:
      // Both keys of one object are one block.
      if (name == "quant_algo" && place.object->find("quant_method") != nullptr) break;
      declare_block(declared, file, place.object, where);
      break;
    case QuantizationKey::flag: {
      const bool bitsandbytes = name.starts_with("load_in");
      const std::string* text = value.as_string();
      const std::string method = bitsandbytes ? "bitsandbytes" : text != nullptr ? *text : name;
      declared.all.push_back(
          {bitsandbytes ? Producer::bitsandbytes : Producer::unknown, method, where, file, &value});
      break;
    }
    case QuantizationKey::block:
      if (is_mlx(place, member)) {
        if (exports_mlx(declared)) break;
        Declaration mlx{Producer::mlx, "MLX", where, file, &value};
        const auto at = name == "quantization" ? declared.all.begin() : declared.all.end();
        declared.all.insert(at, std::move(mlx));
        break;
      }
      [[fallthrough]];
    default:
      declare_nested(declared, file, &value, where);
  }
}

// The usual keys first, whatever stands before them in the file.
constexpr std::string_view first_keys[] = {"quantization_config", "compression_config",
                                           "quant_config"};
bool is_first_key(std::string_view name) {
  return std::find(std::begin(first_keys), std::end(first_keys), name) != std::end(first_keys);
}

void declare_config(Declared& declared, const std::shared_ptr<const Json>& file,
                    const std::string& source) {
  for (const ConfigPlace& place : config_places(*file)) {
    const Json::Object* members = place.object->as_object();
    if (members == nullptr) continue;
    for (const std::string_view key : first_keys) {
      for (const Json::Member& member : *members) {
        if (member.first == key) declare_member(declared, file, place, member, source);
      }
    }
    for (const Json::Member& member : *members) {
      if (!is_first_key(member.first)) declare_member(declared, file, place, member, source);
    }
  }
}

// What a writer put into the headers of the shards, as text of its own or as JSON.
void declare_metadata(Declared& declared, const std::map<std::string, std::string>& metadata) {
  Json::Object members;
  for (const auto& [name, text] : metadata) {
    auto value = Json::parse(text, name);
    Json member = value ? *std::move(value) : Json(text);
    if (quantization_key(name, member) == QuantizationKey::none) continue;
    members.emplace_back(name, std::move(member));
  }
  if (members.empty()) return;
  declare_config(declared, std::make_shared<const Json>(std::move(members)), "__metadata__");
}

// Ascend's msModelSlim: a type a tensor ("W8A8", "FLOAT"), and that of the model.
bool describes_quantized(const Json& file) {
  const Json::Object* members = file.as_object();
  return members != nullptr &&
         std::any_of(members->begin(), members->end(), [](const Json::Member& member) {
           const auto& [name, value] = member;
           const std::string* text = value.as_string();
           const bool named = name.ends_with("quant_type") || name.find('.') != std::string::npos;
           // What is no type is not the type of plain weights.
           if (text == nullptr) return named && !value.is_null();
           return named && *text != "FLOAT" && !says_nothing(value);
         });
}

// Each type has a file name of its own, and newer releases one for all.
Result<void> declare_ascend(Declared& declared, const Checkpoint& checkpoint) {
  for (const std::string_view type :
       {"", "_w8a8", "_w8a8_dynamic", "_w4a8_dynamic", "_w8a16", "_w4a16", "_w8a8s", "_w8a8sc"}) {
    const std::string name = "quant_model_description" + std::string(type) + ".json";
    FEWBIT_TRY(const auto file, checkpoint.json_file(name));
    if (file == nullptr || !describes_quantized(*file)) continue;
    declared.all.push_back({Producer::unknown, "msModelSlim", name, file, file.get()});
  }
  return {};
}

bool is_stated(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  return value != nullptr && !says_nothing(*value);
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

std::string plain_statement(const Declaration& declaration) {
  const Json& block = *declaration.block;
  switch (declaration.producer) {
    case Producer::auto_round: {
      const std::string format = lower_ascii(word_at(block, "packing_format"));
      const bool fake = format == "auto_round:fake" || format == "fake";
      return fake ? "packing_format \"" + format + "\"" : "";
    }
    case Producer::modelopt: {
      const Json* algorithm = block.find("quant_algo");
      const bool layers =
          is_stated(block, "quantized_layers") || is_stated(block, "moe_quant_algo");
      const bool none = algorithm != nullptr && (algorithm->is_null() || word_of(algorithm)) &&
                        says_nothing(*algorithm);
      return none && !layers ? "quant_algo " + value_text(*algorithm) : "";
    }
    case Producer::compressed_tensors: {
      if (is_stated(block, "config_groups") || is_stated(block, "sparsity_config")) return "";
      if (lower_ascii(word_at(block, "format")) == "dense") return "format \"dense\"";
      return is_stated(block, "kv_cache_scheme") ? "a kv_cache_scheme without config_groups" : "";
    }
    default:
      return "";
  }
}

bool written_by_auto_round(const Declaration& declaration) {
  const Json& block = *declaration.block;
  if (declaration.producer == Producer::auto_round) return true;
  if (!block.is_object()) return false;
  if (block.find("autoround_version") != nullptr) return true;
  const Json* meta = block.find("meta");
  const Json* tool = meta != nullptr && meta->is_object() ? meta->find("quantizer") : nullptr;
  for (const Json* one : {block.find("provider"), tool}) {
    if (one == nullptr) continue;
    const std::string text = lower_ascii(one->dump());
    for (const std::string_view name : {"auto-round", "auto_round", "autoround"}) {
      if (text.find(name) != std::string::npos) return true;
    }
  }
  return false;
}

Result<Declared> read_declared(const Checkpoint& checkpoint) {
  Declared declared;
  FEWBIT_TRY(const ModelJson config, read_model_json(checkpoint));
  if (config.root != nullptr) declare_config(declared, config.root, config.name);

  FEWBIT_TRY(auto modelopt, checkpoint.json_file("hf_quant_config.json"));
  if (modelopt != nullptr) {
    const NestedBlock nested = nested_block(*modelopt);
    const Json* block = modelopt->find("quantization");
    if (nested.merged != nullptr) block = nested.merged.get();
    declared.all.push_back({Producer::modelopt, "modelopt", "hf_quant_config.json", modelopt,
                            block != nullptr ? block : modelopt.get(), nullptr, nested.merged,
                            nested.hidden});
  }
  FEWBIT_TRY(declare_layer_file(declared, checkpoint));
  FEWBIT_TRY(auto gptq, checkpoint.json_file("quantize_config.json"));
  if (gptq != nullptr) declare_file(declared, gptq, "quantize_config.json", Producer::gptq, "gptq");
  FEWBIT_TRY(auto awq, checkpoint.json_file("quant_config.json"));
  if (awq != nullptr) declare_file(declared, awq, "quant_config.json", Producer::awq, "awq");
  for (const std::string_view name : block_files) {
    FEWBIT_TRY(auto file, checkpoint.json_file(name));
    if (file == nullptr || says_nothing(*file)) continue;
    declare_nested(declared, file, file.get(), std::string(name));
  }
  FEWBIT_TRY(declare_ascend(declared, checkpoint));
  FEWBIT_TRY(auto qconfig, read_qconfig_file(checkpoint));
  if (qconfig) {
    // Some tools put a block as others write it there.
    const bool named = names_method(*qconfig->file);
    if (named) declare_nested(declared, qconfig->file, qconfig->file.get(), qconfig->where);
    if (!named) declared.all.push_back(*std::move(qconfig));
  }
  declare_metadata(declared, checkpoint.metadata());
  FEWBIT_TRY(declare_jang_file(declared, checkpoint));
  const auto budget = std::make_shared<MatchBudget>();
  for (Declaration& declaration : declared.all) declaration.budget = budget;
  return declared;
}

}  // namespace fewbit
