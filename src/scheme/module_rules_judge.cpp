// SPDX-License-Identifier: Apache-2.0
// What a list says of a module that may be stored as one matrix and listed as several, or the
// reverse.
#include <fmt/format.h>

#include <algorithm>

#include "scheme/fused_names.hpp"
#include "scheme/module_rules.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
ModuleRules::Verdict ModuleRules::judge(std::string_view module) const {
  using Kind = Verdict::Kind;
  if (const auto entry = find(module)) return {Kind::whole, &entries_[*entry], {}, {}};
  Verdict verdict = judge_parts(module);
  if (verdict.entry != nullptr) return verdict;
  for (const std::string& fused : fused_names_of(last_component(module))) {
    if (const auto entry = find_fused(module, fused)) {
      return {Kind::whole, &entries_[*entry], {}, {}};
    }
  }
  return {};
}

ModuleRules::Verdict ModuleRules::judge(const Module& module) const {
  Verdict verdict = judge(std::string_view(module.name));
  return verdict.kind == Verdict::Kind::none ? judge_experts(module) : verdict;
}

ModuleRules::Verdict ModuleRules::judge_experts(const Module& module) const {
  using Kind = Verdict::Kind;
  Verdict verdict;
  std::size_t listed = 0;
  const std::vector<std::string> names = names_of_experts(module);
  for (const std::string& name : names) {
    const Verdict one = judge(std::string_view(name));
    if (one.kind == Kind::partly) return one;
    if (one.kind == Kind::none) continue;
    if (listed++ == 0) verdict.entry = one.entry;
  }
  if (listed == 0) return {};
  verdict.kind = listed == names.size() || dialect_.any_part ? Kind::whole : Kind::partly;
  if (verdict.kind == Kind::partly) {
    verdict.listed_parts = fmt::format("{} of {} experts", listed, names.size());
    verdict.other_parts = fmt::format("{}", names.size() - listed);
  }
  return verdict;
}

ModuleRules::Verdict ModuleRules::judge_parts(std::string_view module) const {
  using Kind = Verdict::Kind;
  Verdict verdict;
  for (const std::string& part : fused_parts(last_component(module))) {
    const auto entry = find(with_last_component(module, part));
    if (entry && verdict.entry == nullptr) verdict.entry = &entries_[*entry];
    std::string& list = entry ? verdict.listed_parts : verdict.other_parts;
    list += (list.empty() ? "" : ", ") + part;
  }
  if (verdict.entry == nullptr) return {};
  const bool whole = verdict.other_parts.empty() || dialect_.any_part;
  verdict.kind = whole ? Kind::whole : Kind::partly;
  return verdict;
}

// A pattern that matches a part, "self_attn.q.*" for one, means that part, whatever name of a fused
// matrix it happens to match too.
std::optional<std::size_t> ModuleRules::find_fused(std::string_view module,
                                                   const std::string& fused) const {
  const std::string name = with_last_component(module, fused);
  if (dialect_.by_fused_name) return find(name);
  return find(name, [&](std::size_t entry) {
    const std::vector<std::string> parts = fused_parts(fused);
    return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
      const std::string part_name = with_last_component(module, part);
      Spellings spellings(part_name);
      return pattern_hits(entry, spellings);
    });
  });
}

}  // namespace fewbit
