// SPDX-License-Identifier: Apache-2.0
#include "scheme/compressed_tensors_args.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "checkpoint/json_text.hpp"
#include "core/ascii.hpp"
#include "scheme/config_value_kinds.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

constexpr std::string_view known_keys[] = {
    "num_bits", "type",     "symmetric", "group_size",  "strategy", "block_structure",
    "dynamic",  "actorder", "observer",  "scale_dtype", "zp_dtype", "observer_kwargs",
    "is_mx"};  // AutoRound's

constexpr std::string_view strategies[] = {"tensor", "channel",      "group",    "block",
                                           "token",  "tensor_group", "attn_head"};

// nullptr when absent or null.
const Json* value_of(const Json& args, std::string_view key) {
  const Json* value = args.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// The same of a key that is never null where compressed-tensors wrote it.
const Json* stated(const Json& args, std::string_view key, const std::string& where,
                   std::string_view expected, OddValues& odd) {
  const Json* value = args.find(key);
  if (value != nullptr && value->is_null()) odd.note_null(where, key, expected);
  return value_of(args, key);
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// [128, 128] or "128x128".
std::optional<Granularity> block_of(const Json& value) {
  std::optional<std::int64_t> rows;
  std::optional<std::int64_t> cols;
  if (const Json::Array* pair = value.as_array(); pair != nullptr && pair->size() == 2) {
    rows = (*pair)[0].as_int64();
    cols = (*pair)[1].as_int64();
  } else if (const std::string* text = value.as_string()) {
    const std::string_view view = *text;
    const std::size_t x = view.find('x');
    if (x == std::string_view::npos) return std::nullopt;
    rows = number(view.substr(0, x));
    cols = number(view.substr(x + 1));
  }
  if (!rows || !cols || *rows < 1 || *cols < 1) return std::nullopt;
  return Granularity{*rows, *cols};
}

std::optional<ActOrder> act_order_of(const Json& value) {
  if (const auto flag = value.as_bool()) return *flag ? ActOrder::group : ActOrder::none;
  const std::string* text = value.as_string();
  if (text == nullptr) return std::nullopt;
  const std::string name = lower_ascii(*text);
  if (name == "group" || name == "dynamic") return ActOrder::group;
  if (name == "weight" || name == "static") return ActOrder::static_groups;
  return std::nullopt;
}

CtArgs integers(int bits, std::optional<std::int64_t> group_size, bool symmetric = true) {
  CtArgs args;
  args.bits = bits;
  args.group_size = group_size;
  args.symmetric = symmetric;
  return args;
}

CtArgs floats(int bits, std::optional<std::int64_t> group_size = std::nullopt) {
  CtArgs args;
  args.bits = bits;
  args.floating = true;
  args.group_size = group_size;
  return args;
}

CtArgs float_blocks() {
  CtArgs args = floats(8);
  args.block = Granularity{128, 128};
  return args;
}

// "W4A16" with any widths: groups of 128 below 8 bits, else a scale a row.
std::optional<CtPreset> width_preset(std::string_view name) {
  const std::size_t a = name.find('A');
  if (!name.starts_with('W') || a == std::string_view::npos) return std::nullopt;
  const auto weight = number(name.substr(1, a - 1));
  const auto activation = number(name.substr(a + 1));
  if (!weight || !activation || *weight < 1 || *weight > 8) return std::nullopt;
  CtPreset preset{integers(static_cast<int>(*weight), std::nullopt), std::nullopt};
  if (*weight < 8) preset.weights.group_size = 128;
  if (*activation == 8 || *activation == 4) {
    preset.activations = integers(static_cast<int>(*activation), std::nullopt);
  } else if (*activation != 16) {
    return std::nullopt;
  }
  return preset;
}

constexpr std::string_view a_width = "an integer from 1 to 16";
constexpr std::string_view int_or_float = "\"int\" or \"float\"";
constexpr std::string_view yes_or_no = "true or false";
constexpr std::string_view yes_no_local = "true, false or \"local\"";

// What a code is: its width and its type.
void read_codes(const Json& args, const std::string& where, OddValues& odd, CtArgs& out) {
  if (const Json* bits = stated(args, "num_bits", where, a_width, odd)) {
    const auto value = bits->as_int64();
    const bool known = value && *value >= 1 && *value <= 16;
    if (known) out.bits = static_cast<int>(*value);
    out.bits_usable = known;
    if (!known) odd.note(where, "num_bits", *bits, a_width);
  }
  if (const Json* type = stated(args, "type", where, int_or_float, odd)) {
    const std::string* text = type->as_string();
    out.floating = text != nullptr && *text == "float";
    if (text == nullptr || (*text != "float" && *text != "int")) {
      odd.note(where, "type", *type, int_or_float);
    }
  }
  if (const Json* symmetric = stated(args, "symmetric", where, yes_or_no, odd)) {
    out.symmetric = symmetric->as_bool().value_or(true);
    if (!symmetric->as_bool()) odd.note(where, "symmetric", *symmetric, yes_or_no);
  }
  if (const Json* dynamic = stated(args, "dynamic", where, yes_no_local, odd)) {
    const std::string* text = dynamic->as_string();
    out.fixed = dynamic->as_bool() == false;
    if (!dynamic->as_bool() && (text == nullptr || *text != "local")) {
      odd.note(where, "dynamic", *dynamic, yes_no_local);
    }
  }
}

// How scales lie over the matrix.
void read_scales(const Json& args, const std::string& where, OddValues& odd, CtArgs& out) {
  if (const Json* size = value_of(args, "group_size")) {
    const auto value = size->as_int64();
    if (value && *value > 0) out.group_size = *value;
    if (!value || *value < -1 || *value == 0) odd.note(where, "group_size", *size, "-1 or above 0");
  }
  if (const Json* strategy = value_of(args, "strategy")) {
    const std::string* text = strategy->as_string();
    const bool known = text != nullptr && std::find(std::begin(strategies), std::end(strategies),
                                                    *text) != std::end(strategies);
    if (known) out.strategy = *text;
    if (!known) odd.note(where, "strategy", *strategy, "tensor, channel, group, block or another");
  }
  if (const Json* block = value_of(args, "block_structure")) {
    out.block = block_of(*block);
    if (!out.block) odd.note(where, "block_structure", *block, "[rows, columns]");
  }
  if (const Json* order = value_of(args, "actorder")) {
    const auto value = act_order_of(*order);
    out.act_order = value.value_or(ActOrder::none);
    if (!value) odd.note(where, "actorder", *order, "group, weight, dynamic, static or a boolean");
  }
}

// What the tensors themselves tell, and how scales were found.
void check_rest(const Json& args, const std::string& where, OddValues& odd) {
  for (const std::string_view key : {"scale_dtype", "zp_dtype"}) {
    const Json* type = value_of(args, key);
    if (type != nullptr && word_of(type) == nullptr) {
      odd.note(where, key, *type, "the name of a type");
    }
  }
  if (const Json* mx = args.find("is_mx"); mx != nullptr && !mx->as_bool()) {
    odd.note_aside(where, "is_mx", *mx, yes_or_no);
  }
  const Json* observer = value_of(args, "observer");
  if (observer != nullptr && word_of(observer) == nullptr) {
    odd.note_aside(where, "observer", *observer, "a name");
  }
  const Json* settings = value_of(args, "observer_kwargs");
  if (settings != nullptr && !settings->is_object()) {
    odd.note_aside(where, "observer_kwargs", *settings, "an object of settings");
  }
}

void check_keys(const Json& args, const std::string& where, OddValues& odd) {
  const Json::Object* members = args.as_object();
  if (members == nullptr) return;
  for (const auto& [key, value] : *members) {
    const auto end = std::end(known_keys);
    if (std::find(std::begin(known_keys), end, key) == end) {
      odd.note(where, key, value, "a key of quantization arguments");
      if (!odd.unknown_keys) odd.findings.back().level = Level::info;
    }
  }
}

}  // namespace

void OddValues::note(const std::string& where, std::string_view key, const Json& value,
                     std::string_view expected) {
  findings.push_back({Level::warning, "config-value", where,
                      fmt::format("{} {}", key, value_text(value)), std::string(expected)});
}

void OddValues::note_aside(const std::string& where, std::string_view key, const Json& value,
                           std::string_view expected) {
  note(where, key, value, expected);
  findings.back().level = Level::info;
}

void OddValues::note_null(const std::string& where, std::string_view key,
                          std::string_view expected) {
  note_aside(where, key, Json(), expected);
  findings.back().expected += null_is_absent;
}

CtArgs read_ct_args(const Json& args, const std::string& where, OddValues& odd) {
  CtArgs out;
  read_codes(args, where, odd, out);
  read_scales(args, where, odd, out);
  check_rest(args, where, odd);
  check_keys(args, where, odd);
  return out;
}

std::optional<CtPreset> find_ct_preset(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  const std::optional<CtArgs> none;
  const std::pair<std::string_view, CtPreset> presets[] = {
      {"W4A16_ASYM", {integers(4, 128, false), none}},
      {"W8A16", {integers(8, std::nullopt), none}},
      {"W8A8", {integers(8, std::nullopt), integers(8, std::nullopt)}},
      {"INT8", {integers(8, std::nullopt), integers(8, std::nullopt)}},
      {"W4AFP8", {integers(4, 128), floats(8)}},
      {"FP8", {floats(8), floats(8)}},
      {"FP8_DYNAMIC", {floats(8), floats(8)}},
      {"FP8_BLOCK", {float_blocks(), floats(8)}},
      {"NVFP4A16", {floats(4, 16), none}},
      {"NVFP4", {floats(4, 16), floats(4, 16)}},
      {"MXFP4A16", {floats(4, 32), none}},
      {"MXFP4", {floats(4, 32), floats(4, 32)}},
      {"MXFP8A16", {floats(8, 32), none}},
      {"MXFP8", {floats(8, 32), floats(8, 32)}},
  };
  for (const auto& [known, preset] : presets) {
    if (known == upper) return preset;
  }
  return width_preset(upper);
}

}  // namespace fewbit
