// SPDX-License-Identifier: Apache-2.0
#include "scheme/module_match_regex.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/quote.hpp"
#include "scheme/module_match.hpp"
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
// Bytes of a frame that the interpreter copies in the time of a step, and of a name that it reads.
constexpr std::size_t bytes_copied_a_step = 1024;
constexpr std::size_t usual_name_bytes = 1024;
// Machine code takes up to a hundred times as much: larger patterns are interpreted.
constexpr std::size_t most_jit_bytes = 2048;
constexpr std::uint32_t depth_limit = 5'000;
constexpr std::uint32_t heap_limit_kib = 8U << 10;

}  // namespace

// A pattern in PCRE2's form.
struct Compiled {
  Pcre2Code code;
  std::size_t bytes = 0;
  bool jit = false;
  std::uint64_t cost = 0;       // of compiling, in steps
  std::uint64_t step_cost = 1;  // of one step of the interpreter
};

struct PythonRegex::State {
  std::string pattern;
  std::string where;
  std::shared_ptr<MatchBudget> budget;
  Compiled kept;  // empty: there was no room for it
  std::size_t reserved = 0;
  // Reused from match to match: a regex belongs to one thread.
  Pcre2MatchContext context;

  ~State() {
    if (budget != nullptr) budget->release(reserved);
  }
};

namespace {

// PCRE2 looks up the other cases of every character of a range, some 5 ns each.
std::uint64_t cost_of_ranges(std::string_view text) {
  constexpr std::uint64_t whole_range = std::uint64_t{1} << 20;
  const bool caseless = text.find("(?i") != std::string_view::npos ||
                        text.find("(?-i") != std::string_view::npos ||
                        (text.starts_with("(?") && text.substr(0, 6).find('i') != text.npos);
  const bool wide = text.find("\\x{") != std::string_view::npos ||
                    std::any_of(text.begin(), text.end(), [](char c) { return c < 0; });
  if (!caseless || !wide) return 0;
  return whole_range * static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '-'));
}

std::size_t info_size(const pcre2_code* code, std::uint32_t what) {
  std::size_t value = 0;
  pcre2_pattern_info(code, what, &value);
  return value;
}

// Groups and their names are compared with each other, so that long patterns cost more than their
// length.
std::uint64_t cost_of_compiling(std::size_t bytes) {
  return bytes / 8 + static_cast<std::uint64_t>(bytes) * bytes / 2048;
}

Error spent_error(std::string_view pattern, const MatchBudget& budget, const std::string& where) {
  return Error{ErrorCode::limit,
               fmt::format("pattern {} is not compiled: {}", quote(pattern), budget.spent_text()),
               where};
}

Result<Compiled> compile_pattern(std::string_view pattern, const std::string& where,
                                 const MatchBudget& budget) {
  FEWBIT_TRY(const std::string text, translate_python_regex(pattern, where));
  Compiled out;
  out.cost = cost_of_ranges(text);
  if (out.cost >= budget.most()) {
    return Error{ErrorCode::limit,
                 fmt::format("pattern {} takes {} steps to be compiled, more than the {} that all "
                             "patterns of a config have together",
                             quote(pattern), out.cost, budget.most()),
                 where};
  }
  const Pcre2CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  out.code.reset(pcre2_compile(pcre2_units(text), text.size(),
                               // Asked for when matching, it would keep the compiled code idle.
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_ANCHORED,
                               &code, &offset, context.get()));
  if (!out.code) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("pattern {}: {} at byte {}", quote(pattern), pcre2_message(code), offset),
        where};
  }
  out.bytes = info_size(out.code.get(), PCRE2_INFO_SIZE);
  out.cost += cost_of_compiling(text.size() + out.bytes);
  out.step_cost = interpreter_cost *
                  (1 + info_size(out.code.get(), PCRE2_INFO_FRAMESIZE) / bytes_copied_a_step);
  return out;
}

}  // namespace

PythonRegex::PythonRegex(std::unique_ptr<State> state) : state_(std::move(state)) {}
PythonRegex::PythonRegex(PythonRegex&&) noexcept = default;
PythonRegex& PythonRegex::operator=(PythonRegex&&) noexcept = default;
PythonRegex::~PythonRegex() = default;

Result<PythonRegex> PythonRegex::compile(std::string_view pattern, const std::string& where,
                                         std::shared_ptr<MatchBudget> budget) {
  if (pattern.size() > max_pattern_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("pattern of {} bytes, at most {}", pattern.size(), max_pattern_bytes),
                 where};
  }
  if (budget == nullptr) budget = std::make_shared<MatchBudget>();
  if (budget->spent()) return spent_error(pattern, *budget, where);
  FEWBIT_TRY(Compiled compiled, compile_pattern(pattern, where, *budget));
  budget->spend(compiled.cost);
  auto state = std::make_unique<State>();
  state->pattern = std::string(pattern);
  state->where = where;
  if (budget->has_room(compiled.bytes)) {
    // Without a just-in-time compiler the interpreter matches the same.
    if (compiled.bytes <= most_jit_bytes) {
      compiled.jit = pcre2_jit_compile(compiled.code.get(), PCRE2_JIT_COMPLETE) == 0;
      compiled.bytes += info_size(compiled.code.get(), PCRE2_INFO_JITSIZE);
    }
    state->reserved = budget->keep(compiled.bytes);
    state->kept = std::move(compiled);
  }
  state->budget = std::move(budget);
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
  Compiled again;
  if (!s.kept.code) {
    FEWBIT_TRY(again, compile_pattern(s.pattern, s.where, *s.budget));
    steps += again.cost;
  }
  const Compiled& compiled = s.kept.code ? s.kept : again;
  // Kept between matches, it would hold the heap of the largest one.
  const Pcre2MatchData data(pcre2_match_data_create(1, nullptr));
  // A step may read all of a name.
  const std::uint64_t length = 1 + text.size() / usual_name_bytes;
  const auto most = static_cast<std::uint32_t>(std::max<std::uint64_t>(match_limit / length, 64));
  const auto run = [&](std::uint32_t options, std::uint32_t limit) {
    limit = std::min(limit, most);
    const bool jit = compiled.jit && options == 0;
    steps += limit * (jit ? 1 : compiled.step_cost) * length + text.size() / bytes_a_step;
    pcre2_set_match_limit(s.context.get(), limit);
    return pcre2_match(compiled.code.get(), pcre2_units(text), text.size(), 0, options, data.get(),
                       s.context.get());
  };
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (const std::uint32_t limit : smaller_limits) {
    if (found == PCRE2_ERROR_MATCHLIMIT && limit < most) found = run(0, limit);
  }
  if (found == PCRE2_ERROR_MATCHLIMIT) found = run(0, match_limit);
  // Compiled code counts its steps in another way: the interpreter's count decides everywhere.
  if (compiled.jit && (found == PCRE2_ERROR_JIT_STACKLIMIT || found == PCRE2_ERROR_MATCHLIMIT)) {
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
