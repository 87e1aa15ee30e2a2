// SPDX-License-Identifier: Apache-2.0
// Values of quantization blocks that mean nothing: of the wrong kind, out of range, empty or blank.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "checkpoint/json_text.hpp"
#include "scheme/config_value_kinds.hpp"
#include "scheme/config_word.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_places = 10'000;
constexpr std::size_t most_findings = 16;

// Settings of an algorithm, not of what it wrote.
constexpr std::string_view other_uses[] = {"algo_config", "hybrid_bit_map", "transform_config",
                                           "sparsity_config"};
constexpr std::string_view quark_sharing[] = {"per_tensor", "per_channel", "per_group",
                                              "per_token",  "per_block",   "per_row"};

template <std::size_t count>
bool one_of(std::string_view text, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

class ValueCheck {
 public:
  explicit ValueCheck(const Declaration& declaration) : declaration_(declaration) {}

  std::vector<Finding> run() {
    places_.push_back({declaration_.block, declaration_.where, false});
    // Of a method beside the model's sizes only the keys around it are the method's.
    const Json& block = *declaration_.block;
    const bool model =
        block.find("model_type") != nullptr || block.find("architectures") != nullptr;
    for (std::size_t i = 0; i < places_.size() && places_.size() < most_places; ++i) {
      const auto [object, path, by_name] = places_[i];
      const Json::Object* members = object->as_object();
      if (members == nullptr) continue;
      for (const auto& [key, value] : *members) {
        if (!by_name) check(path, key, value, i == 0 ? KeyDepth::outermost : KeyDepth::inner);
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
    const bool by_name = holds_settings(declaration_.producer, key);
    if (value.is_object()) places_.push_back({&value, path + "." + key, by_name});
    const Json::Array* items = value.as_array();
    if (items == nullptr) return;
    for (std::size_t i = 0; i < items->size() && places_.size() < most_places; ++i) {
      if ((*items)[i].is_object()) {
        places_.push_back({&(*items)[i], fmt::format("{}.{}[{}]", path, key, i), false});
      }
    }
  }

  void check(const std::string& path, const std::string& key, const Json& value, KeyDepth depth) {
    const Producer producer = declaration_.producer;
    add(path, key, value, expected_value(producer, key, value, depth));
    const Json::Object* members = value.as_object();
    if (members == nullptr || !holds_settings(producer, key)) return;
    for (const auto& [name, settings] : *members) {
      if (settings.is_object() || settings.is_null()) continue;
      add(path + "." + key, name, settings, "an object of settings");
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
      add(path, "dtype", *dtype, word_of(dtype) ? "" : "the name of a type");
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
  struct Place {
    const Json* object = nullptr;
    std::string path;
    bool by_name = false;  // its keys are names of modules
  };
  std::vector<Place> places_;
  std::vector<Finding> findings_;
  std::size_t more_ = 0;
};

}  // namespace

void check_config_values(Inventory& inventory) {
  for (const Declaration& declaration : inventory.declared.all) {
    for (Finding& finding : ValueCheck(declaration).run()) {
      inventory.findings.push_back(std::move(finding));
    }
  }
}

}  // namespace fewbit
