// SPDX-License-Identifier: Apache-2.0
#include "scheme/layer_file.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/ascii.hpp"
#include "scheme/config_places.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

constexpr std::string_view table_key = "quantized_layers";

// Empty where there is none.
const Json* table_of(const Json& block) {
  const Json* table = block.find(table_key);
  return table != nullptr && table->as_object() != nullptr && !table->as_object()->empty()
             ? table
             : nullptr;
}

std::string algorithm_of(const Json& block) { return lower_ascii(word_at(block, "quant_algo")); }

bool is_modelopt(const Declaration& one) {
  return one.producer == Producer::modelopt && one.block->is_object();
}

// The block with the table of the other file.
void add_table(Declaration& declaration, const Json& table) {
  Json block = *declaration.block;
  block.set(table_key, table);
  declaration.file = std::make_shared<const Json>(std::move(block));
  declaration.block = declaration.file.get();
  declaration.where += " with " + std::string(layer_file);
}

}  // namespace

Result<void> declare_layer_file(Declared& declared, const Checkpoint& checkpoint) {
  FEWBIT_TRY(const auto file, checkpoint.json_file(layer_file));
  if (file == nullptr || !file->is_object()) return {};
  const Json* table = table_of(*file);
  const Json* algorithm = file->find("quant_algo");
  if (table == nullptr && (algorithm == nullptr || says_nothing(*algorithm))) return {};
  bool known = false;
  for (Declaration& one : declared.all) {
    if (!is_modelopt(one)) continue;
    const std::string said = algorithm_of(*one.block);
    const bool mixed = said == "mixed_precision";
    known = known || said == algorithm_of(*file) || (mixed && table != nullptr);
    if (mixed && table != nullptr && table_of(*one.block) == nullptr) add_table(one, *table);
  }
  // What a block of its own is there to tell.
  const bool odd = is_odd_word(algorithm) || is_odd_word(file->find("kv_cache_quant_algo"));
  if (known && !odd) return {};
  declared.all.push_back(
      {Producer::modelopt, "modelopt", std::string(layer_file), file, file.get()});
  return {};
}

Result<void> declare_jang_file(Declared& declared, const Checkpoint& checkpoint) {
  if (!declared.all.empty()) return {};
  FEWBIT_TRY(const auto file, checkpoint.json_file(jang_file));
  if (file == nullptr || says_nothing(*file)) return {};
  declared.all.push_back({Producer::unknown, "jang", std::string(jang_file), file, file.get()});
  return {};
}

}  // namespace fewbit
