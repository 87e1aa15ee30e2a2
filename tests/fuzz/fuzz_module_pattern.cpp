// SPDX-License-Identifier: Apache-2.0
// A list of modules as each producer reads it: entries on lines, a NUL byte, names on lines.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/module_rules.hpp"

namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < 32) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using fewbit::Producer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view list = input.substr(0, input.find('\0'));
  std::vector<std::string> names = lines_of(input.substr(std::min(size, list.size() + 1)));
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const Producer producer :
       {Producer::modelopt, Producer::compressed_tensors, Producer::quark, Producer::fp8,
        Producer::awq, Producer::auto_round, Producer::mxfp4}) {
    std::vector<fewbit::PatternEntry> entries;
    for (std::string& line : lines_of(list)) entries.push_back({std::move(line), "fuzz"});
    const fewbit::ModuleRules rules(fewbit::dialect_of(producer), std::move(entries));
    for (const fewbit::Finding& finding : rules.report(views)) {
      if (finding.rule.empty() || finding.found.empty()) std::abort();
    }
    for (const std::string_view name : views) {
      const auto verdict = rules.judge(name);
      const bool decided = verdict.kind != fewbit::ModuleRules::Verdict::Kind::none;
      if (decided != (verdict.entry != nullptr)) std::abort();
    }
  }
  return 0;
}
