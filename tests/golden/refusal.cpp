// SPDX-License-Identifier: Apache-2.0
#include "golden/refusal.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace fewbit::golden {
namespace {

// Names and numbers: runs of letters, digits and '_'.
std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      names.back() += c;
    } else if (!names.back().empty()) {
      names.emplace_back();
    }
  }
  if (names.back().empty()) names.pop_back();
  return names;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool same_cause(std::string_view theirs, std::string_view ours, std::span<const Cause> causes) {
  const auto cause =
      std::ranges::find_if(causes, [&](const Cause& one) { return has(theirs, one.theirs); });
  if (cause == causes.end() || !has(ours, cause->ours) || !has(ours, cause->words)) return false;
  const std::size_t got = theirs.find("got ");
  if (!cause->given || got == std::string_view::npos) return true;
  const std::vector<std::string> have = names_in(ours);
  return std::ranges::all_of(names_in(theirs.substr(got + 4)), [&](const std::string& name) {
    return std::ranges::find(have, name) != have.end();
  });
}

std::string text_of(const Json& row, const char* key) {
  const Json* value = row.find(key);
  return value == nullptr || value->as_string() == nullptr ? "" : *value->as_string();
}

bool as_wanted(const Json& row, const Result<void>& result, std::span<const Cause> causes) {
  if (text_of(row, "result") == "ok") return result.has_value();
  if (text_of(row, "result") != "error" || result.has_value()) return false;
  const std::string ours = result.error().message();
  if (text_of(row, "error") == "TypeError" && !has(ours, "dtype")) return false;
  return same_cause(text_of(row, "message"), ours, causes);
}

}  // namespace

Result<void> check_row(const GoldenCase& c, const Json& row, const Result<void>& result,
                       std::span<const Cause> causes) {
  if (as_wanted(row, result, causes)) return {};
  return Error{
      ErrorCode::inconsistent,
      "got " + (result ? "success" : "'" + result.error().message() + "'") + ", want " + row.dump(),
      c.name};
}

}  // namespace fewbit::golden
