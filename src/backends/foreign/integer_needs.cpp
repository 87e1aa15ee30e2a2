// SPDX-License-Identifier: Apache-2.0
// What of integers engines' loaders and kernels don't take, whatever the sizes.
#include <fmt/format.h>

#include <algorithm>

#include "backends/foreign/rules.hpp"

namespace fewbit::foreign {
namespace {

// Formats whose loader has a bias for every expert, whether the checkpoint stores one or not.
const char* declares_biases(Producer producer) {
  switch (producer) {
    case Producer::gptq:
    case Producer::auto_round:
      return "GPTQ, whose loader always declares biases";
    case Producer::awq:
      return "AWQ, whose loader always declares biases";
    default:
      return nullptr;
  }
}

// What a loader asks of a format.
struct LoaderNeeds {
  bool symmetric = false;
  bool in_order = false;       // no act-order in groups
  bool groups = false;         // not one scale a channel
  bool channels_8bit = false;  // one scale a channel where codes have 8 bits
  bool only_4bit = false;
};
LoaderNeeds needs_of(Loader loader, Producer producer) {
  if (loader == Loader::none) return {};
  switch (producer) {
    case Producer::gptq:
    case Producer::auto_round:
      return {.symmetric = true};
    case Producer::awq:
      return {.only_4bit = true};
    case Producer::compressed_tensors:
      if (loader == Loader::sglang) return {.symmetric = true};
      if (loader == Loader::vllm_marlin) return {.channels_8bit = true};
      return {.symmetric = true, .in_order = true, .groups = true, .channels_8bit = true};
    default:
      return {};
  }
}

std::string group_text(std::int64_t group) {
  return group == 0 ? "one scale a channel" : std::to_string(group);
}

class Check {
 public:
  Check(const Rules& rules, const char* which, const Scheme& scheme, WeightKind kind)
      : rules_(rules),
        which_(which),
        scheme_(scheme),
        group_(scheme.scale->granularity.cols),
        integer_(integers.contains(kind)),
        loader_(integer_ ? needs_of(rules.loader, scheme.producer) : LoaderNeeds{}) {}

  std::vector<Refusal> refusals() && {
    check_loader();
    check_form();
    check_group();
    return std::move(refusals_);
  }

 private:
  void refuse(const std::string& needs, std::string has) {
    refusals_.push_back({Reason::weight, needs, std::move(has)});
  }

  void check_loader() {
    const bool is_8bit = dtype_bits(scheme_.weight) == 8;
    if (loader_.only_4bit && is_8bit) refuse(which_ + " of 4 bits", "8 bits");
    if (loader_.channels_8bit && is_8bit && group_ != 0) {
      refuse(which_ + " with one scale a channel, as 8-bit compressed-tensors",
             fmt::format("groups of {}", group_));
    }
    if (loader_.groups && group_ == 0) {
      refuse(which_ + " with scales a group", "one scale a channel");
    }
  }

  void check_form() {
    const bool asks_8bit_middle = loader_.channels_8bit && dtype_bits(scheme_.weight) == 8;
    if (scheme_.zero_points && (!rules_.zero_points || loader_.symmetric || asks_8bit_middle)) {
      refuse(which_ + " without stored zero points", "zero points");
    }
    if (scheme_.act_order == ActOrder::group && (!rules_.group_order || loader_.in_order)) {
      refuse(which_ + " without act-order in groups", "act-order");
    }
    if (scheme_.producer == Producer::awq && !rules_.awq_words) {
      refuse(which_ + " not packed in AutoAWQ's order", "AutoAWQ's order");
    }
    const char* declares = declares_biases(scheme_.producer);
    if (declares != nullptr && !rules_.declared_biases) {
      refuse(which_ + " of a format that declares no biases", declares);
    }
  }

  void check_group() {
    const auto& groups = rules_.integer_groups;
    if (groups.empty() || !integer_ || std::ranges::find(groups, group_) != groups.end()) return;
    std::vector<std::string> sizes;
    for (const std::int64_t size : groups) sizes.push_back(group_text(size));
    refuse("group size " + joined(sizes), group_text(group_));
  }

  const Rules& rules_;
  std::string which_;
  const Scheme& scheme_;
  std::int64_t group_;
  bool integer_;
  LoaderNeeds loader_;
  std::vector<Refusal> refusals_;
};

}  // namespace

std::string joined(const std::vector<std::string>& words, const char* between, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? last : between;
    text += words[i];
  }
  return text;
}

std::vector<Refusal> integer_needs(const Rules& rules, const char* which, const Scheme& scheme,
                                   WeightKind kind) {
  if (!scheme.scale || scheme.ggml_type) return {};
  return Check(rules, which, scheme, kind).refusals();
}

}  // namespace fewbit::foreign
