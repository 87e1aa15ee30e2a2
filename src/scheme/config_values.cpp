// SPDX-License-Identifier: Apache-2.0
// Values of quantization blocks that mean nothing: of the wrong kind, out of range, empty or blank.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "checkpoint/json_text.hpp"
#include "scheme/compressed_tensors_args.hpp"
#include "scheme/config_value_kinds.hpp"
#include "scheme/config_word.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_places = 10'000;
constexpr std::size_t most_findings = 16;

// Settings of an algorithm, not of what it wrote: only keys with a rule for this place count.
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
  explicit ValueCheck(const Declaration& declaration)
      : declaration_(declaration), producer_(declaration.producer) {}

  std::vector<Finding> run() {
    places_.push_back({declaration_.block, declaration_.where});
    // Of a method beside the model's sizes only the keys around it are the method's.
    const Json& block = *declaration_.block;
    model_ = block.find("model_type") != nullptr || block.find("architectures") != nullptr;
    for (std::size_t i = 0; i < places_.size() && places_.size() < most_places; ++i) {
      const Place place = places_[i];
      const Json::Object* members = place.object->as_object();
      if (members == nullptr) continue;
      for (const auto& [key, value] : *members) {
        if (!place.by_name) check(place, key, value, {.outermost = i == 0, .in = place.in});
        if (!model_) enter(place, key, value);
      }
      if (producer_ == Producer::quark) check_quark(place.path, *place.object);
    }
    if (more_ > 0) {
      findings_.push_back({Level::warning, "config-value", declaration_.where,
                           fmt::format("{} more such values", more_), "values that can be used"});
    }
    return std::move(findings_);
  }

 private:
  struct Place {
    const Json* object = nullptr;
    std::string path;
    std::string_view in = {};  // the key that it stands under
    bool by_name = false;      // its keys are names of modules
    bool other_use = false;
  };

  void enter(const Place& place, const std::string& key, const Json& value) {
    const std::string path = place.path + "." + key;
    if (key == "config_groups") return check_groups(path, value);
    const bool other_use = place.other_use || one_of(key, other_uses);
    const ConfigKey* rule = find_config_key(producer_, key, {.outermost = false, .in = place.in});
    const bool by_name = rule != nullptr && rule->kind == ValueKind::settings;
    if (value.is_object()) places_.push_back({&value, path, key, by_name, other_use});
    const Json::Array* items = value.as_array();
    if (items == nullptr) return;
    for (std::size_t i = 0; i < items->size() && places_.size() < most_places; ++i) {
      if (!(*items)[i].is_object()) continue;
      places_.push_back({&(*items)[i], fmt::format("{}[{}]", path, i), key, false, other_use});
    }
  }

  // Groups in compressed-tensors' form in the block of another producer; its own are checked when
  // they are read.
  void check_groups(const std::string& path, const Json& value) {
    const Json::Object* groups = value.as_object();
    if (producer_ == Producer::compressed_tensors || groups == nullptr) return;
    OddValues odd{.unknown_keys = false};
    for (const auto& [name, group] : *groups) read_ct_group(name, group, path + "." + name, odd);
    for (Finding& finding : odd.findings) add(std::move(finding));
  }

  void check(const Place& place, const std::string& key, const Json& value, const KeyPlace& at) {
    const ConfigKey* rule = find_config_key(producer_, key, at);
    if (rule == nullptr || (place.other_use && rule->in.empty()) || (model_ && rule->aside)) return;
    const bool null = value.is_null() || rule->aside;
    add(place.path, key, value, expected_value(*rule, producer_, value, at),
        null ? Level::info : Level::warning);
    const Json::Object* members = value.as_object();
    if (members == nullptr || rule->kind != ValueKind::settings) return;
    for (const auto& [name, settings] : *members) {
      if (settings.is_object()) continue;
      std::string expected = "an object of settings";
      if (settings.is_null()) expected += null_is_absent;
      add(place.path + "." + key, name, settings, std::move(expected),
          settings.is_null() ? Level::info : Level::warning);
    }
  }

  // The description of one tensor has a dtype and, unless it is one number a tensor, a qscheme.
  void check_quark(const std::string& path, const Json& object) {
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

  void add(const std::string& path, std::string_view key, const Json& value, std::string expected,
           Level level = Level::warning) {
    if (expected.empty()) return;
    add({level, "config-value", path, fmt::format("{} {}", key, value_text(value)),
         std::move(expected)});
  }

  void add(Finding finding) {
    // What means nothing to the weights hides nothing else.
    const bool full = finding.level == Level::info ? asides_ >= most_findings
                                                   : findings_.size() - asides_ >= most_findings;
    if (full) {
      more_ += finding.level == Level::info ? 0 : 1;
      return;
    }
    asides_ += finding.level == Level::info ? 1 : 0;
    findings_.push_back(std::move(finding));
  }

  const Declaration& declaration_;
  Producer producer_;
  bool model_ = false;
  std::vector<Place> places_;
  std::vector<Finding> findings_;
  std::size_t asides_ = 0;  // findings of level info
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
