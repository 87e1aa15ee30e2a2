// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_split.hpp"

#include <fmt/format.h>

#include "core/quote.hpp"

namespace fewbit {
namespace {

constexpr std::size_t max_steps = 32;

// ByteLevel's own pattern (GPT-2), used when use_regex is set.
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string type_of(const Json& node) {
  const Json* type = node.find("type");
  return type != nullptr && type->as_string() != nullptr ? *type->as_string() : std::string();
}

Error unsupported(const std::string& where, std::string what) {
  return Error{ErrorCode::unsupported, std::move(what), where};
}

Result<bool> read_flag(const Json& node, std::string_view key, bool missing,
                       const std::string& where) {
  const Json* value = node.find(key);
  if (value == nullptr || value->is_null()) return missing;
  if (const auto flag = value->as_bool()) return *flag;
  return Error{ErrorCode::corrupt,
               fmt::format("{} is {}, expected true or false", key, quote(value->dump())), where};
}

}  // namespace

Result<WordSplitter> WordSplitter::read(const Json* pre_tokenizer, const std::string& where) {
  WordSplitter splitter;
  if (pre_tokenizer != nullptr && !pre_tokenizer->is_null()) {
    FEWBIT_TRY(splitter.add(*pre_tokenizer, where));
  }
  if (!splitter.complete_) {
    return unsupported(where, "no ByteLevel in pre_tokenizer, expected byte-level BPE");
  }
  return splitter;
}

Result<void> WordSplitter::add(const Json& node, const std::string& where) {
  const std::string type = type_of(node);
  if (type == "Sequence") return add_sequence(node, where);
  if (complete_) {
    return unsupported(where, fmt::format("pre_tokenizer {} after ByteLevel", quote(type)));
  }
  if (steps_.size() >= max_steps) {
    return Error{ErrorCode::limit, fmt::format("more than {} pre_tokenizers", max_steps), where};
  }
  if (type == "Split") return add_split(node, where);
  if (type == "ByteLevel") return add_byte_level(node, where);
  if (type == "Digits") {
    FEWBIT_TRY(const bool single, read_flag(node, "individual_digits", false, where));
    FEWBIT_TRY(auto pattern, TokenizerPattern::compile(single ? R"(\p{N})" : R"(\p{N}+)",
                                                       TokenizerPattern::Kind::regex, where));
    steps_.push_back({std::move(pattern), Drop::nothing, false});
    return {};
  }
  return unsupported(where, fmt::format("pre_tokenizer {}, expected Sequence, Split, Digits or "
                                        "ByteLevel",
                                        quote(type)));
}

Result<void> WordSplitter::add_sequence(const Json& node, const std::string& where) {
  const Json* list = node.find("pretokenizers");
  const Json::Array* entries = list == nullptr ? nullptr : list->as_array();
  if (entries == nullptr) {
    return Error{ErrorCode::corrupt, "pre_tokenizer Sequence without a pretokenizers array", where};
  }
  for (const Json& entry : *entries) FEWBIT_TRY(add(entry, where));
  return {};
}

Result<void> WordSplitter::add_split(const Json& node, const std::string& where) {
  const Json* pattern = node.find("pattern");
  const Json* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  const Json* literal = pattern == nullptr ? nullptr : pattern->find("String");
  const Json* text = regex != nullptr ? regex : literal;
  if (text == nullptr || text->as_string() == nullptr) {
    return Error{ErrorCode::corrupt,
                 fmt::format("pattern of Split is {}, expected Regex or String with a text",
                             pattern == nullptr ? "missing" : quote(pattern->dump())),
                 where};
  }
  Step step;
  FEWBIT_TRY(const bool invert, read_flag(node, "invert", false, where));
  const Json* behavior = node.find("behavior");
  const std::string name =
      behavior != nullptr && behavior->as_string() != nullptr ? *behavior->as_string() : "";
  if (name == "Removed") {
    step.drop = invert ? Drop::gaps : Drop::matches;
  } else if (name != "Isolated") {
    return unsupported(
        where, fmt::format("behavior {} of Split, expected Isolated or Removed", quote(name)));
  }
  const auto kind =
      regex != nullptr ? TokenizerPattern::Kind::regex : TokenizerPattern::Kind::literal;
  FEWBIT_TRY(step.pattern, TokenizerPattern::compile(*text->as_string(), kind, where));
  steps_.push_back(std::move(step));
  return {};
}

Result<void> WordSplitter::add_byte_level(const Json& node, const std::string& where) {
  Step step;
  FEWBIT_TRY(step.prefix_space, read_flag(node, "add_prefix_space", true, where));
  FEWBIT_TRY(const bool use_regex, read_flag(node, "use_regex", true, where));
  if (use_regex) {
    FEWBIT_TRY(step.pattern,
               TokenizerPattern::compile(gpt2_pattern, TokenizerPattern::Kind::regex, where));
  }
  steps_.push_back(std::move(step));
  complete_ = true;
  return {};
}

Result<void> WordSplitter::apply(const Step& step, std::string_view word,
                                 std::vector<std::string_view>& out) {
  const auto keep = [&](std::size_t begin, std::size_t end, Drop kind) {
    if (begin < end && step.drop != kind) out.push_back(word.substr(begin, end - begin));
  };
  std::size_t done = 0;
  TokenizerPattern::Search search(*step.pattern, word);
  for (;;) {
    FEWBIT_TRY(const auto match, search.next());
    if (!match) break;
    keep(done, match->begin, Drop::gaps);
    keep(match->begin, match->end, Drop::matches);
    done = match->end;
  }
  keep(done, word.size(), Drop::gaps);
  return {};
}

Result<void> WordSplitter::split(std::string_view text, Words& words) const {
  words.views.clear();
  words.owned.clear();
  if (!text.empty()) words.views.push_back(text);
  for (const Step& step : steps_) {
    if (step.prefix_space) {
      for (std::string_view& word : words.views) {
        if (!word.starts_with(' ')) word = words.owned.emplace_back(" " + std::string(word));
      }
    }
    if (!step.pattern) continue;
    std::vector<std::string_view> out;
    for (const std::string_view word : words.views) FEWBIT_TRY(apply(step, word, out));
    words.views = std::move(out);
  }
  return {};
}

}  // namespace fewbit
