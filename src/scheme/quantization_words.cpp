// SPDX-License-Identifier: Apache-2.0
#include "scheme/quantization_words.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "core/ascii.hpp"
#include "core/text_search.hpp"
#include "scheme/config_places.hpp"

namespace fewbit {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view methods[] = {
    "gptq",   "awq",       "bnb",     "bitsandbytes", "hqq",         "exl2",   "exl3",   "mlx",
    "quanto", "quark",     "torchao", "aqlm",         "vptq",        "quip",   "nncf",   "spqr",
    "eetq",   "autoround", "fbgemm",  "squeezellm",   "modelopt",    "bitnet", "nf3",    "nf4",
    "fp4",    "fp6",       "fp8",     "nvfp4",        "mxfp4",       "mxfp6",  "mxfp8",  "int2",
    "int3",   "int4",      "int8",    "uint4",        "uint8",       "mxint4", "mxint8", "ternary",
    "lowbit", "marlin",    "exllama", "rtn",          "smoothquant",
};
// Keys that only quantized weights have.
constexpr std::string_view own_keys[] = {
    "q_group_size",   "weight_block_size", "scale_fmt",       "kept_format", "hybrid_bit_map",
    "moe_quant_algo", "desc_act",          "rotation_config", "quant_level", "weight_scale_type"};
// Types of blocks, which other keys of that word say nothing of.
constexpr std::string_view block_types[] = {"ggml_type", "gguf_type", "ftype"};
// Of quantizers, and of other things too: they count where two of them stand together.
constexpr std::string_view weak_keys[] = {
    "block_size",   "group_size",      "codebook_bits", "sym",
    "symmetric",    "zero_point",      "scale_dtype",   "act_order",
    "damp_percent", "true_sequential", "static_groups"};
constexpr std::string_view plain_types[] = {"auto",  "half",  "float", "double", "float64",
                                            "fp64",  "f64",   "f32",   "f16",    "int16",
                                            "int32", "int64", "bool",  "bfloat"};

// Lattices and tables that weights are rounded to: beginnings, lower case.
constexpr std::string_view weight_codebooks[] = {"e8",   "d4",   "hi4b", "3inst",
                                                 "1mad", "mul1", "mcg"};
// What a quantizer of sounds and images is.
constexpr std::string_view codec_quantizers[] = {"vq",  "vector", "fsq",    "scalar",  "lfq",
                                                 "bsq", "gumbel", "kmeans", "residual"};

bool one_of(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "weightBits", "weight-bits" and "weight_bits" are "weight" and "bits".
Words words_of(std::string_view text) {
  Words words(1);
  bool lower = false;
  for (const char c : text) {
    const bool capital = c >= 'A' && c <= 'Z';
    const bool small = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if ((!(capital || small) || (capital && lower)) && !words.back().empty()) words.emplace_back();
    if (capital || small) words.back() += c;
    lower = c >= 'a' && c <= 'z';
  }
  for (std::string& word : words) word = lower_ascii(word);
  return words;
}

bool any_word(const Words& words, std::initializer_list<std::string_view> list) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  });
}

bool digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "w4a16", "q4", "e2m1", "float8", or the name of a method.
bool is_low_bit_word(const std::string& word) {
  if (one_of(word, methods)) return true;
  if (word.starts_with("float8") || word.starts_with("float4")) return true;
  const auto pair = [&](char first, char second) {
    const std::size_t at = word.find(second);
    return word.front() == first && at != std::string::npos &&
           digits(std::string_view(word).substr(1, at - 1)) && digits(word.substr(at + 1));
  };
  if (word.size() < 2) return false;
  return pair('w', 'a') || pair('e', 'm') || (word.front() == 'q' && digits(word.substr(1))) ||
         (word.starts_with("iq") && digits(word.substr(2)));
}

bool has_low_bit_word(const Words& words) {
  return std::any_of(words.begin(), words.end(), is_low_bit_word);
}

// "w4a16": 1
bool is_switched_on(const Words& key, const Json& value) {
  if (key.size() != 1 || value.as_double().value_or(0) == 0) return false;
  const std::string& word = key.front();
  return one_of(word, methods) || (word.starts_with('w') && is_low_bit_word(word));
}

// Names, paths and versions may have any words in them.
bool is_short_text(const Words& key, const std::string& text) {
  return text.size() <= 32 &&
         !any_word(key, {"name", "path", "type", "architectures", "version", "id", "revision",
                         "class", "license", "url", "optimizer"});
}

bool is_low_bit_type(const Json& value) {
  if (const Json::Array* items = value.as_array()) {
    return std::any_of(items->begin(), items->end(), is_low_bit_type);
  }
  const std::string* text = value.as_string();
  if (text == nullptr) return value.as_double().has_value();
  std::string lower = lower_ascii(*text);
  if (lower.starts_with("torch.")) lower.erase(0, 6);
  return !says_nothing(Json(lower)) && !one_of(lower, plain_types);
}

// Above 0 and below 16, as a number or in a text; anything else that says something.
bool is_low_width(const Json& value) {
  auto number = value.as_double();
  if (const std::string* text = value.as_string()) {
    double parsed = 0;
    const auto end = std::from_chars(text->data(), text->data() + text->size(), parsed);
    if (end.ec != std::errc{}) return false;
    number = parsed;
  }
  return !number || (*number > 0 && *number < 16);
}

bool is_width_key(const Words& key) {
  return any_word(key, {"bit", "bits", "nbit", "nbits", "wbit", "wbits", "qbit", "qbits", "bpw",
                        "bitwidth", "bitwidths"}) &&
         !any_word(key, {"depth", "sample", "color", "codebook", "rate"});
}

// Quantizers of codecs, quantiles of losses, convolutions of that name.
bool is_quantization_word(const std::string& word) {
  return contains_text(word, "quant") &&
         !contains_any(word, {"quantizer", "quantile", "quantum", "quantit", "quanta"});
}

// "quant": 4, "smooth_quant": 0.5; not how many or how large a codec's are, or what weighs a loss.
bool is_strength(const Words& key) {
  return !any_word(
      key,
      {"num",  "number",   "count",  "n",      "dim",  "dims",   "dimension",   "hidden", "size",
       "loss", "coef",     "lambda", "rate",   "beta", "depth",  "width",       "start",  "steps",
       "step", "channels", "layers", "stride", "bins", "groups", "temperature", "in",     "out"});
}

bool begins_with_any(std::string_view text, std::span<const std::string_view> list) {
  return std::any_of(list.begin(), list.end(),
                     [&](std::string_view start) { return text.starts_with(start); });
}

// "quantizer": "rtn", "codebook": "e8p"; other values of both are a codec's.
bool names_quantizer(const Words& key, const Json& value) {
  const std::string* text = value.as_string();
  if (text == nullptr || key.size() != 1) return false;
  const std::string lower = lower_ascii(*text);
  if (key.front() == "codebook") return begins_with_any(lower, weight_codebooks);
  return key.front() == "quantizer" &&
         std::none_of(std::begin(codec_quantizers), std::end(codec_quantizers),
                      [&](std::string_view word) { return contains_text(lower, word); });
}

bool says_quantized(const Words& key, const Json& value) {
  const auto number = value.as_double();
  if (number && (*number == 0 || is_width_key(key) || !is_strength(key))) return false;
  if (any_word(key, {"conv", "vector", "targets", "levels", "noise", "dropout", "embed"})) {
    return false;
  }
  return std::any_of(key.begin(), key.end(), is_quantization_word);
}

bool is_codec(const Words& path) {
  return any_word(path, {"audio", "codec", "speech", "vocoder", "vq", "vqgan", "encodec", "mimi"});
}

}  // namespace

bool speaks_of_quantization(std::string_view path, std::string_view key, const Json& value) {
  const std::string lower = lower_ascii(std::string(key));
  const Words words = words_of(key);
  const Words place = words_of(path);
  const auto of_others = {std::string_view("kv"), std::string_view("cache"),
                          std::string_view("activation"), std::string_view("activations")};
  if (lower == "desc_act") return true;
  if (says_nothing(value) || any_word(words, of_others) || any_word(place, of_others)) return false;
  if (any_word(words, {"dtype"})) return is_low_bit_type(value);
  if (one_of(lower, own_keys)) return true;
  if (is_width_key(words) && is_low_width(value)) return true;
  if (!is_codec(place)) {
    const bool flag = value.as_double().value_or(0) != 0 && is_quantization_key(key);
    if (flag || says_quantized(words, value) || names_quantizer(words, value)) return true;
  }
  if (is_switched_on(words, value)) return true;
  if (has_low_bit_word(words)) return !value.as_double().has_value();
  const std::string* text = value.as_string();
  const bool quantizer = contains_text(lower, "quant");
  return text != nullptr &&
         (quantizer || one_of(lower, block_types) || is_short_text(words, *text)) &&
         has_low_bit_word(words_of(*text));
}

std::vector<std::string> weak_quantization_keys(std::string_view path, const Json& object) {
  std::vector<std::string> found;
  const Json::Object* members = object.as_object();
  if (members == nullptr || is_codec(words_of(path))) return found;
  bool codec = false;
  bool codebook = false;
  for (const auto& [name, value] : *members) {
    const std::string lower = lower_ascii(name);
    codec =
        codec || contains_any(lower, {"codebook_size", "codebook_dim", "quantizers", "sampling"});
    if (says_nothing(value) || !one_of(lower, weak_keys)) continue;
    codebook = codebook || lower == "codebook_bits";
    found.push_back(name);
  }
  const bool enough = found.size() > 1 || codebook;
  return enough && !codec ? found : std::vector<std::string>();
}

}  // namespace fewbit
