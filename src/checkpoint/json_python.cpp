// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_python.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace fewbit {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr std::pair<std::string_view, double> names[] = {
    {"-Infinity", -infinity},
    {"Infinity", infinity},
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
};

// Bytes of the number at the start of `text` by RFC 8259; 0 when none stands there.
std::size_t number_length(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - first;
  };
  const auto take = [&](std::string_view any) {
    const bool found = at < text.size() && any.find(text[at]) != std::string_view::npos;
    at += found ? 1 : 0;
    return found;
  };
  take("-");
  const bool zero = at < text.size() && text[at] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return 0;
  if (take(".") && digits() == 0) return 0;
  if (take("eE")) {
    take("+-");
    if (digits() == 0) return 0;
  }
  return at;
}

// The infinity that a number of this text is read as; 0 for numbers in range and those too small.
double overflow(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc::result_out_of_range) return 0;
  const std::size_t mantissa = std::min(text.find_first_of("eE"), text.size());
  const std::size_t point = std::min(text.find('.'), mantissa);
  const std::size_t first = text.find_first_of("123456789");
  if (first >= mantissa) return 0;
  std::int64_t exponent = 0;
  if (mantissa < text.size()) {
    const std::size_t at = mantissa + (text[mantissa + 1] == '+' ? 2 : 1);
    const auto parsed = std::from_chars(text.data() + at, end, exponent);
    constexpr std::int64_t huge = std::int64_t{1} << 40;
    const bool negative = text[at] == '-';
    if (parsed.ec != std::errc()) exponent = negative ? -huge : huge;
    exponent = std::clamp(exponent, -huge, huge);
  }
  // Out of range, the decimal exponent is far from zero.
  if (static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) + exponent < 0) return 0;
  return text.front() == '-' ? -infinity : infinity;
}

// Past the string whose quote stands at `at`.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

bool continues_number(char c) {
  return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E';
}

}  // namespace

PythonNumbers::PythonNumbers(std::string_view text) : source_(text) {
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      at = string_end(text, at);
      continue;
    }
    const auto* const name = std::find_if(std::begin(names), std::end(names), [&](const auto& one) {
      return text.substr(at).starts_with(one.first);
    });
    if (name != std::end(names)) {
      add(at, name->first.size(), name->second);
      at += name->first.size();
      continue;
    }
    if (!continues_number(c)) {
      ++at;
      continue;
    }
    const std::size_t length = number_length(text.substr(at));
    if (const double value = overflow(text.substr(at, length)); value != 0) add(at, length, value);
    at += length;
    // What is no number is left to the parser.
    while (at < text.size() && continues_number(text[at])) ++at;
  }
}

void PythonNumbers::add(std::size_t at, std::size_t length, double value) {
  if (literals_.empty()) copy_ = source_;
  literals_.push_back({at + length, {value, std::string(source_.substr(at, length))}});
  copy_.replace(at, length, "\"" + std::string(length - 2, 'x') + "\"");
}

std::optional<Json::Number> PythonNumbers::ending_at(std::size_t end) const {
  const auto found =
      std::lower_bound(literals_.begin(), literals_.end(), end,
                       [](const Literal& one, std::size_t wanted) { return one.end < wanted; });
  if (found == literals_.end() || found->end != end) return std::nullopt;
  return found->number;
}

}  // namespace fewbit
