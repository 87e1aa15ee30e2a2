// SPDX-License-Identifier: Apache-2.0
// Widths, group sizes and kinds of scales in quantization blocks that mean nothing.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "scheme/auto_round_check.hpp"
#include "scheme/config_places.hpp"
#include "scheme/config_section.hpp"
#include "scheme/integer_config.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_places = 10'000;
constexpr std::size_t most_findings = 16;

// Settings of an algorithm, not of what it wrote.
constexpr std::string_view other_uses[] = {"algo_config", "hybrid_bit_map", "transform_config",
                                           "sparsity_config"};
constexpr std::string_view width_keys[] = {"bits", "w_bit", "wbits", "num_bits", "nbits"};
constexpr std::string_view group_keys[] = {"group_size", "q_group_size", "awq_block_size"};
constexpr std::string_view word_keys[] = {"quant_algo", "kv_cache_quant_algo", "moe_quant_algo",
                                          "fmt",        "scale_fmt",           "activation_scheme"};
constexpr std::string_view list_keys[] = {
    "ignore",          "ignored_layers",         "exclude",
    "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules"};
constexpr std::string_view quark_sharing[] = {"per_tensor", "per_channel", "per_group",
                                              "per_token",  "per_block",   "per_row"};

template <std::size_t count>
bool one_of(std::string_view text, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

// What should stand there; empty when the value can be used, or is null, which says nothing.
std::string expected_width(Producer producer, const Json& value) {
  const auto number = value.as_double();
  const bool in_range = number && *number > 0 && *number <= 32;
  // Averages of mixed widths, and 1.58.
  if (producer == Producer::unknown || producer == Producer::exl2 || producer == Producer::exl3) {
    return in_range ? "" : "a number of bits, above 0 to 32";
  }
  return in_range && value.as_int64() ? "" : "an integer from 1 to 32";
}

// Rows and columns of FP8 blocks; the outermost ones have a rule of their own.
bool is_block_size(const Json& value) {
  const Json::Array* sides = value.as_array();
  return sides != nullptr && sides->size() == 2 &&
         std::all_of(sides->begin(), sides->end(),
                     [](const Json& side) { return side.as_int64().value_or(0) > 0; });
}

std::string expected_group(Producer producer, const Json& value, bool outermost) {
  if (value.is_array() && (outermost || is_block_size(value))) return "";
  const auto number = value.as_int64();
  if (number && (*number >= 1 || *number == -1)) return "";
  // AutoRound's scale a matrix.
  if (producer == Producer::auto_round && number == 0) return "";
  return "-1 (a scale a row) or a number of columns above 0";
}

std::string expected_word(std::string_view key, const Json& value) {
  if (says_nothing(value)) return "";
  const std::string* text = value.as_string();
  if (key == "activation_scheme") {
    const bool known = text != nullptr && (*text == "dynamic" || *text == "static");
    return known ? "" : "dynamic or static";
  }
  return text != nullptr ? "" : "a name";
}

// The entries that are no names, and a list that is none, name nothing.
std::string expected_list(const Json& value) {
  if (says_nothing(value)) return "";
  const Json::Array* items = value.as_array();
  const bool names =
      items != nullptr &&
      std::all_of(items->begin(), items->end(), [](const Json& one) { return one.is_string(); });
  return names ? "" : "a list of names";
}

class ValueCheck {
 public:
  ValueCheck(const Declaration& declaration, bool integers_told)
      : declaration_(declaration), integers_told_(integers_told) {}

  std::vector<Finding> run() {
    places_.push_back({declaration_.block, declaration_.where});
    // Of a method beside the model's sizes only the keys around it are the method's.
    const Json& block = *declaration_.block;
    const bool model =
        block.find("model_type") != nullptr || block.find("architectures") != nullptr;
    for (std::size_t i = 0; i < places_.size() && places_.size() < most_places; ++i) {
      const auto [object, path] = places_[i];
      const Json::Object* members = object->as_object();
      if (members == nullptr) continue;
      for (const auto& [key, value] : *members) {
        check(path, key, value, i == 0);
        if (!model) enter(path, key, value);
      }
      if (declaration_.producer == Producer::quark) check_quark(path, *object);
    }
    if (more_ > 0) {
      findings_.push_back({Level::warning, "config-value", declaration_.where,
                           fmt::format("{} more such values", more_), "values that can be used"});
    }
    return std::move(findings_);
  }

 private:
  void enter(const std::string& path, const std::string& key, const Json& value) {
    const bool others =
        declaration_.producer == Producer::compressed_tensors && key == "config_groups";
    if (others || one_of(key, other_uses)) return;
    if (value.is_object()) places_.emplace_back(&value, path + "." + key);
    const Json::Array* items = value.as_array();
    if (items == nullptr) return;
    for (std::size_t i = 0; i < items->size() && places_.size() < most_places; ++i) {
      if ((*items)[i].is_object()) {
        places_.emplace_back(&(*items)[i], fmt::format("{}.{}[{}]", path, key, i));
      }
    }
  }

  void check(const std::string& path, const std::string& key, const Json& value, bool outermost) {
    if (one_of(key, word_keys)) {
      add(path, key, value, expected_word(key, value));
    } else if (one_of(key, list_keys)) {
      add(path, key, value, expected_list(value));
    } else if (value.is_null() || integers_told_) {
      return;
    } else if (one_of(key, width_keys)) {
      add(path, key, value, expected_width(declaration_.producer, value));
    } else if (one_of(key, group_keys)) {
      add(path, key, value, expected_group(declaration_.producer, value, outermost));
    }
  }

  // The description of one tensor has a dtype and, unless it is one number a tensor, a qscheme.
  void check_quark(const std::string& path, const Json& object) {
    if (const Json* weight = object.find("weight")) {
      const bool usable = weight->is_null() || weight->is_object() || weight->is_array();
      add(path, "weight", *weight,
          usable ? "" : "an object with dtype and qscheme, or a list of such");
    }
    const Json* sharing = object.find("qscheme");
    if (sharing == nullptr) return;
    if (const Json* dtype = object.find("dtype")) {
      add(path, "dtype", *dtype, dtype->is_string() ? "" : "the name of a type");
    }
    const std::string* name = sharing->as_string();
    const bool known = sharing->is_null() || (name != nullptr && one_of(*name, quark_sharing));
    add(path, "qscheme", *sharing, known ? "" : "per_tensor, per_channel, per_group or another");
    if (name == nullptr || *name != "per_group") return;
    const Json* size = object.find("group_size");
    const bool none = size == nullptr || size->is_null() || size->as_int64() == -1;
    const std::string expected = "a number of columns above 0, for qscheme is per_group";
    if (none) add(path, "group_size", size == nullptr ? Json() : *size, expected);
  }

  void add(const std::string& path, std::string_view key, const Json& value, std::string expected) {
    if (expected.empty()) return;
    if (findings_.size() >= most_findings) {
      ++more_;
      return;
    }
    findings_.push_back({Level::warning, "config-value", path,
                         fmt::format("{} {}", key, value_text(value)), std::move(expected)});
  }

  const Declaration& declaration_;
  bool integers_told_;  // the reader of integer words names its own
  std::vector<std::pair<const Json*, std::string>> places_;
  std::vector<Finding> findings_;
  std::size_t more_ = 0;
};

}  // namespace

void check_config_values(Inventory& inventory) {
  const bool words =
      std::any_of(inventory.drafts.begin(), inventory.drafts.end(),
                  [](const Draft& draft) { return is_compared_with_config(draft.module); });
  bool integers_told = false;
  for (const Declaration& declaration : inventory.declared.all) {
    const bool integers = words && !integers_told && read_integer_config(declaration).has_value();
    integers_told = integers_told || integers;
    for (Finding& finding : ValueCheck(declaration, integers).run()) {
      inventory.findings.push_back(std::move(finding));
    }
  }
}

}  // namespace fewbit
