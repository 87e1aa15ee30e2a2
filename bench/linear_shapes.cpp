// SPDX-License-Identifier: Apache-2.0
#include "bench/linear_shapes.hpp"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "core/quote.hpp"
#include "select/problem_list.hpp"

namespace fewbit::bench {
namespace {

constexpr std::size_t words_of_line = 4;  // name out_features in_features schemes

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

Result<std::int64_t> size_of(const char* what, const std::string& word, const std::string& where) {
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, value);
  if (error == std::errc() && at == end && value >= 1 && value <= INT32_MAX) return value;
  return Error{ErrorCode::corrupt,
               fmt::format("{} is {}, expected 1 to {}", what, quote(word), INT32_MAX), where};
}

Result<void> add_line(const std::vector<std::string>& words, const std::string& where,
                      std::vector<LayerShape>& shapes) {
  LinearSize size;
  FEWBIT_TRY(size.out_features, size_of("out_features", words[1], where));
  FEWBIT_TRY(size.in_features, size_of("in_features", words[2], where));
  std::istringstream schemes(words[3]);
  bool first = true;
  for (std::string scheme; std::getline(schemes, scheme, ',');) {
    const auto known = scheme_from_name(scheme);
    if (!known) return Error{ErrorCode::corrupt, known.error().what, where};
    LayerShape shape;
    shape.name = first ? words[0] : words[0] + "/" + scheme;
    shape.scheme = scheme;
    shape.linear = size;
    shapes.push_back(std::move(shape));
    first = false;
  }
  return {};
}

}  // namespace

Result<std::vector<LayerShape>> take_linear_shapes(std::string& text, const std::string& where) {
  std::istringstream lines(text);
  std::string others;
  std::vector<LayerShape> shapes;
  int number = 0;
  for (std::string line; std::getline(lines, line); others += line + "\n") {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.size() != words_of_line) continue;
    FEWBIT_TRY(add_line(words, fmt::format("{} line {}", where, number), shapes));
    line.clear();
  }
  text = std::move(others);
  return shapes;
}

}  // namespace fewbit::bench
