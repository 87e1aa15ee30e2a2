// SPDX-License-Identifier: Apache-2.0
#include "scheme/module_match_regex.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "core/quote.hpp"
#include "scheme/pcre2_handles.hpp"

namespace fewbit {
namespace {

constexpr std::size_t max_pattern_bytes = std::size_t{16} << 10;
// A pattern is tried on every name of a checkpoint; sensible ones need some hundred steps.
constexpr std::uint32_t match_limit = 50'000;
// PCRE2 does not tell how many steps a match took, only whether a limit was enough: it is tried
// with these before, so that what a match is said to take is within a factor of 8.
constexpr std::uint32_t smaller_limits[] = {16, 128, 1024, 8192};
// A step of compiled code takes some 8 ns, one of the interpreter some 40 ns.
constexpr std::uint64_t interpreter_cost = 5;
// Bytes of a name that are read for the price of a step.
constexpr std::uint64_t bytes_a_step = 8;
constexpr std::uint32_t depth_limit = 5'000;
constexpr std::uint32_t heap_limit_kib = 8U << 10;

}  // namespace

struct PythonRegex::State {
  std::string pattern;
  std::string where;
  Pcre2Code code;
  // Reused from match to match: a regex belongs to one thread.
  Pcre2MatchData data;
  Pcre2MatchContext context;
};

PythonRegex::PythonRegex(std::unique_ptr<State> state) : state_(std::move(state)) {}
PythonRegex::PythonRegex(PythonRegex&&) noexcept = default;
PythonRegex& PythonRegex::operator=(PythonRegex&&) noexcept = default;
PythonRegex::~PythonRegex() = default;

Result<PythonRegex> PythonRegex::compile(std::string_view pattern, const std::string& where) {
  if (pattern.size() > max_pattern_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("pattern of {} bytes, at most {}", pattern.size(), max_pattern_bytes),
                 where};
  }
  FEWBIT_TRY(const std::string text, translate_python_regex(pattern, where));
  const Pcre2CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto state = std::make_unique<State>();
  state->pattern = std::string(pattern);
  state->where = where;
  state->code.reset(pcre2_compile(pcre2_units(text), text.size(),
                                  // Asked for when matching, it would keep the compiled code idle.
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_ANCHORED,
                                  &code, &offset, context.get()));
  if (!state->code) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("pattern {}: {} at byte {}", quote(pattern), pcre2_message(code), offset),
        where};
  }
  // Without a just-in-time compiler the interpreter matches the same.
  pcre2_jit_compile(state->code.get(), PCRE2_JIT_COMPLETE);
  state->data.reset(pcre2_match_data_create_from_pattern(state->code.get(), nullptr));
  state->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_depth_limit(state->context.get(), depth_limit);
  pcre2_set_heap_limit(state->context.get(), heap_limit_kib);
  return PythonRegex(std::move(state));
}

Result<bool> PythonRegex::match(std::string_view text) const {
  std::uint64_t steps = 0;
  return match(text, steps);
}

Result<bool> PythonRegex::match(std::string_view text, std::uint64_t& steps) const {
  const State& s = *state_;
  const auto run = [&](std::uint32_t options, std::uint32_t limit) {
    steps += limit * (options == 0 ? 1 : interpreter_cost) + text.size() / bytes_a_step;
    pcre2_set_match_limit(s.context.get(), limit);
    return pcre2_match(s.code.get(), pcre2_units(text), text.size(), 0, options, s.data.get(),
                       s.context.get());
  };
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (const std::uint32_t limit : smaller_limits) {
    if (found == PCRE2_ERROR_MATCHLIMIT) found = run(0, limit);
  }
  if (found == PCRE2_ERROR_MATCHLIMIT) found = run(0, match_limit);
  // Compiled code counts its steps in another way: the interpreter's count decides everywhere.
  if (found == PCRE2_ERROR_JIT_STACKLIMIT || found == PCRE2_ERROR_MATCHLIMIT) {
    found = run(PCRE2_NO_JIT, match_limit);
  }
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  const bool limit = found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT ||
                     found == PCRE2_ERROR_HEAPLIMIT;
  return Error{
      limit ? ErrorCode::limit : ErrorCode::corrupt,
      fmt::format("pattern {} on {}: {}", quote(s.pattern), quote(text), pcre2_message(found)),
      s.where};
}

}  // namespace fewbit
