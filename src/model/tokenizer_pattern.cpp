// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "model/utf8.hpp"
#include "scheme/pcre2_handles.hpp"

namespace fewbit {
namespace {

constexpr std::size_t max_pattern_bytes = std::size_t{64} << 10;
// Backtracking steps of one search: a constant, and some for each byte, because a step back over a
// long run of spaces is linear in the run.
constexpr std::uint64_t base_match_limit = 10'000'000;
constexpr std::uint64_t match_limit_per_byte = 16;
constexpr std::uint32_t heap_limit_kib = 256U << 10;

}  // namespace

struct TokenizerPattern::State {
  Pcre2Code code;
  std::string pattern;
  std::string where;
};

TokenizerPattern::TokenizerPattern(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenizerPattern::TokenizerPattern(TokenizerPattern&&) noexcept = default;
TokenizerPattern& TokenizerPattern::operator=(TokenizerPattern&&) noexcept = default;
TokenizerPattern::~TokenizerPattern() = default;

Result<TokenizerPattern> TokenizerPattern::compile(std::string_view pattern, Kind kind,
                                                   const std::string& where) {
  if (pattern.empty()) return Error{ErrorCode::corrupt, "the pattern is empty", where};
  if (pattern.size() > max_pattern_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("pattern of {} bytes, at most {}", pattern.size(), max_pattern_bytes),
                 where};
  }
  std::string text(pattern);
  std::uint32_t options = PCRE2_UTF | PCRE2_LITERAL;
  if (kind == Kind::regex) {
    FEWBIT_TRY(text, translate_pattern(pattern, where));
    options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  }
  int code = 0;
  PCRE2_SIZE offset = 0;
  Pcre2Code compiled(
      pcre2_compile(pcre2_units(text), text.size(), options, &code, &offset, nullptr));
  if (!compiled) {
    return Error{ErrorCode::unsupported,
                 fmt::format("pattern '{}': {} at byte {} of '{}'", pattern, pcre2_message(code),
                             offset, text),
                 where};
  }
  // Without a just-in-time compiler (not built in, or memory that may not be executed) the
  // interpreter matches the same.
  pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE);
  return TokenizerPattern(
      std::make_unique<State>(State{std::move(compiled), std::string(pattern), where}));
}

struct TokenizerPattern::Search::State {
  const TokenizerPattern::State* pattern = nullptr;
  std::string_view text;
  std::size_t at = 0;
  std::optional<std::size_t> last_end;
  Pcre2MatchData data;
  Pcre2MatchContext context;

  int match(std::uint32_t options) const {
    return pcre2_match(pattern->code.get(), pcre2_units(text), text.size(), at,
                       options | PCRE2_NO_UTF_CHECK, data.get(), context.get());
  }
};

TokenizerPattern::Search::Search(const TokenizerPattern& pattern, std::string_view text)
    : state_(std::make_unique<State>()) {
  state_->pattern = pattern.state_.get();
  state_->text = text;
  state_->data.reset(pcre2_match_data_create_from_pattern(pattern.state_->code.get(), nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  const std::uint64_t limit = base_match_limit + match_limit_per_byte * text.size();
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  pcre2_set_match_limit(state_->context.get(), static_cast<std::uint32_t>(std::min(limit, most)));
  pcre2_set_heap_limit(state_->context.get(), heap_limit_kib);
}

TokenizerPattern::Search::~Search() = default;

Result<std::optional<TokenizerPattern::Match>> TokenizerPattern::Search::next() {
  State& s = *state_;
  while (s.at <= s.text.size()) {
    int found = s.match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = s.match(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return Error{ErrorCode::limit,
                   fmt::format("pattern '{}' on a text of {} bytes from byte {}: {}",
                               s.pattern->pattern, s.text.size(), s.at, pcre2_message(found)),
                   s.pattern->where};
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data.get());
    const Match match{ends[0], ends[1]};
    if (match.begin == match.end && s.last_end == match.end) {
      if (s.at == s.text.size()) break;
      s.at += utf8_step(s.text.substr(s.at)).bytes;
      continue;
    }
    s.at = match.end;
    s.last_end = match.end;
    return std::optional<Match>(match);
  }
  s.at = s.text.size() + 1;
  return std::optional<Match>();
}

}  // namespace fewbit
