// SPDX-License-Identifier: Apache-2.0
// JSON files beside the weights that speak of quantization and that no reader looks into.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/json_text.hpp"
#include "checkpoint/mapped_file.hpp"
#include "checkpoint/side_files.hpp"
#include "core/ascii.hpp"
#include "core/text_search.hpp"
#include "scheme/config_places.hpp"
#include "scheme/plain_config.hpp"
#include "scheme/quantization_words.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

// Each is parsed alone and let go, so that the largest one bounds the memory.
constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 20;
constexpr std::size_t most_files = 64;

// Words of tokenizers may be any; the rest is read or written by fewbit itself.
constexpr std::string_view beginnings[] = {
    "tokenizer", "tokenization_", "vocab",         "added_tokens",           "special_tokens",
    "tekken",    "merges",        "chat_template", "quant_model_description"};
constexpr std::string_view names[] = {"fewbit_prepared.json", "qconfig.json",
                                      "adapter_config.json"};

bool is_read(const Inventory& inventory, const std::string& name) {
  const std::string lower = lower_ascii(name);
  const auto& all = inventory.declared.all;
  return is_config_file(name) ||
         std::any_of(std::begin(beginnings), std::end(beginnings),
                     [&](std::string_view word) { return lower.starts_with(word); }) ||
         std::find(std::begin(names), std::end(names), lower) != std::end(names) ||
         std::any_of(all.begin(), all.end(),
                     [&](const Declaration& one) { return one.where.starts_with(name); });
}

bool is_named_so(const std::string& name) { return contains_text(lower_ascii(name), "quant"); }

// What a file says of quantization: "quantization_config {…}".
struct Words {
  std::string text;   // empty: nothing
  bool sure = false;  // a key that quantizers have, not only a word that reports may have too
};

// The first words of an object.
Words words_in(const ConfigPlace& place) {
  Words out;
  const Json::Object* members = place.object->as_object();
  if (members == nullptr) return out;
  const std::vector<std::string> weak = weak_quantization_keys(place.path, *place.object);
  for (const auto& [key, value] : *members) {
    const bool sure = quantization_key(key, value) != QuantizationKey::none ||
                      std::find(weak.begin(), weak.end(), key) != weak.end();
    // Results under the names of methods are reports.
    const bool word =
        !value.is_object() && !value.is_array() && speaks_of_quantization(place.path, key, value);
    if (!sure && (!word || !out.text.empty())) continue;
    out = {fmt::format("{}{} {}", place.path, key, value_text(value)), sure};
    if (sure) return out;
  }
  return out;
}

Words words_in(const std::string& name, const Json& file) {
  Words out;
  for (const ConfigPlace& place : config_places(file)) {
    Words words = words_in(place);
    if (words.sure) return words;
    if (out.text.empty()) out = std::move(words);
  }
  const bool any = (file.is_object() || file.is_array()) && !says_nothing(file);
  if (!is_named_so(name) || !any) return out;
  return {out.text.empty() ? value_text(file) : out.text, true};
}

Words words_of_file(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code failure;
  const std::uintmax_t size = fs::file_size(path, failure);
  if (failure) return {};
  if (size > largest_file) {
    if (!is_named_so(name)) return {};
    return {fmt::format("{} bytes, too large to look into", size), true};
  }
  const auto file = MappedFile::open(path);
  if (!file) return {};
  const auto bytes = (*file)->bytes();
  // What is no JSON is another's.
  const auto json = Json::parse_python({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                       path.string());
  return json ? words_in(name, *json) : Words{};
}

bool all_plain(const Inventory& inventory) {
  return inventory.declared.all.empty() &&
         std::none_of(inventory.drafts.begin(), inventory.drafts.end(), [](const Draft& draft) {
           return draft.module.scheme.quantized() || !draft.module.unreadable.empty();
         });
}

}  // namespace

void check_unread_files(Inventory& inventory) {
  if (inventory.gguf) return;
  // A folder that can't be listed has told its weights all the same.
  const auto files = side_files(inventory.checkpoint->directory());
  if (!files) return;
  const bool plain = all_plain(inventory);
  std::size_t count = 0;
  for (const fs::path& path : *files) {
    const std::string name = path.filename().string();
    if (path.extension() != ".json" || is_read(inventory, name)) continue;
    if (++count > most_files) {
      inventory.findings.push_back({Level::info, "config-file-unread", name,
                                    fmt::format("more than {} JSON files", most_files),
                                    "fewer; what the others say of quantization is not known"});
      return;
    }
    Words words = words_of_file(path);
    if (words.text.empty()) continue;
    inventory.findings.push_back(
        {plain && words.sure ? Level::warning : Level::info, "config-file-unread", name,
         std::move(words.text),
         plain ? "quantized weights: all are plain, and no reader looks into this file"
               : "nothing that changes the weights: no reader looks into this file"});
  }
}

}  // namespace fewbit
