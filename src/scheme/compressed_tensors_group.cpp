// SPDX-License-Identifier: Apache-2.0
// One member of compressed-tensors' config_groups.
#include <utility>

#include "core/quote.hpp"
#include "scheme/compressed_tensors_args.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

constexpr std::string_view a_list_of_names = "a list of names of modules or classes";

// Entries that are no names are odd, and so is what is no list.
std::vector<std::string> targets_of(const Json* list, const std::string& where,
                                    std::string_view key, OddValues& odd) {
  std::vector<std::string> out;
  if (list == nullptr) return out;
  const Json::Array* items = list->as_array();
  bool names = items != nullptr && !items->empty();
  for (std::size_t i = 0; items != nullptr && i < items->size(); ++i) {
    const std::string* text = word_of(&(*items)[i]);
    names = names && text != nullptr;
    if (text != nullptr) out.push_back(*text);
  }
  if (!names) odd.note(where, key, *list, a_list_of_names);
  return out;
}

// Arguments of codes; empty where there are none.
std::optional<CtArgs> args_of(const Json& group, std::string_view key, const std::string& where,
                              OddValues& odd) {
  const Json* args = group.find(key);
  if (args == nullptr || args->is_null()) return std::nullopt;
  const Json::Object* members = args->as_object();
  if (members != nullptr && !members->empty()) {
    return read_ct_args(*args, where + "." + std::string(key), odd);
  }
  odd.note(where, key, *args, "an object of quantization arguments, or null where there are none");
  return std::nullopt;
}

CtGroupWithTargets read_preset(const std::string& name, const Json& value, const std::string& where,
                               OddValues& odd) {
  CtGroupWithTargets out;
  const auto preset = find_ct_preset(name);
  if (!preset && name != "UNQUANTIZED") {
    odd.findings.push_back({Level::warning, "config-value", where, quote(name), "a preset's name"});
  }
  if (preset) {
    out.group.weights = preset->weights;
    out.group.activations = preset->activations;
  }
  out.targets = targets_of(&value, where, name, odd);
  return out;
}

CtGroupWithTargets read_settings(const Json& value, const std::string& where, OddValues& odd) {
  CtGroupWithTargets out;
  const Json* format = value.find("format");
  if (is_odd_word(format)) odd.note(where, "format", *format, "the name of a format");
  out.group.format = word_at(value, "format");
  out.group.weights = args_of(value, "weights", where, odd);
  out.group.activations = args_of(value, "input_activations", where, odd);
  args_of(value, "output_activations", where, odd);
  const Json* targets = value.find("targets");
  out.targets = targets_of(targets, where, "targets", odd);
  if (targets == nullptr && odd.unknown_keys) {
    odd.findings.push_back(
        {Level::warning, "config-value", where, "no targets", std::string(a_list_of_names)});
  }
  return out;
}

}  // namespace

CtGroupWithTargets read_ct_group(const std::string& name, const Json& value,
                                 const std::string& where, OddValues& odd) {
  CtGroupWithTargets out;
  if (value.is_array()) {
    out = read_preset(name, value, where, odd);
  } else if (value.is_object()) {
    out = read_settings(value, where, odd);
  } else {
    odd.note(where, name, value, "an object of settings, or a list of targets");
  }
  out.group.name = name;
  return out;
}

}  // namespace fewbit
