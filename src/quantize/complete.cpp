// SPDX-License-Identifier: Apache-2.0
#include "quantize/complete.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "scheme/plain_values.hpp"
#include "scheme/source_errors.hpp"

namespace fewbit {
namespace {

// Errors of how a model is run. The weights are what they are all the same.
constexpr std::string_view of_running[] = {
    "tensor-unexpected",    "bias-unsupported",    "activation-gate",  "config-top-k",
    "config-expert-groups", "config-names-differ", "config-unreadable"};

// Decoding refuses these itself, with the place of the first value that they spoil.
constexpr std::string_view of_values = "scale-nan";

bool is_of_running(const Finding& finding) {
  return std::find(std::begin(of_running), std::end(of_running), finding.rule) !=
         std::end(of_running);
}

Error error_of(const Finding& first, std::size_t count) {
  const ErrorCode code =
      first.rule == "module-unreadable" ? ErrorCode::unsupported : ErrorCode::inconsistent;
  return Error{
      code,
      fmt::format("{}: found {}, expected {}{}", first.rule, first.found, first.expected,
                  count == 1 ? std::string() : fmt::format(" (and {} more findings)", count - 1)),
      first.where};
}

}  // namespace

Result<std::optional<Error>> check_complete(const Checkpoint& source,
                                            const Identified& identified) {
  FEWBIT_TRY(std::vector<Finding> findings, source_errors(source, identified, {}));
  std::erase_if(findings, is_of_running);
  if (findings.empty()) return std::optional<Error>{};
  const auto other = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& one) { return one.rule != of_values; });
  if (other != findings.end()) return error_of(*other, findings.size());
  return std::optional(error_of(findings.front(), findings.size()));
}

Result<void> check_kept(const Checkpoint& source, const Identified& identified,
                        std::span<const TensorInfo* const> kept) {
  std::unordered_set<std::string_view> names;
  for (const TensorInfo* info : kept) names.insert(info->name);
  for (const Module& module : identified.modules) {
    const bool any = std::any_of(module.parts.begin(), module.parts.end(),
                                 [&](const auto& part) { return names.contains(part.tensor); });
    if (!any) continue;
    if (const auto fault = plain_value_fault(source, module)) {
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: found {}, expected {}", fault->finding.rule,
                               fault->finding.found, fault->finding.expected),
                   fault->finding.where};
    }
  }
  return {};
}

}  // namespace fewbit
