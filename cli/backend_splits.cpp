// SPDX-License-Identifier: Apache-2.0
#include "backend_splits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "command.hpp"
#include "select/rank_problem.hpp"
#include "select/select.hpp"

namespace fewbit::cli {
namespace {

// Numbers of ranks that are legal, or refused for the same reason.
struct Verdict {
  std::vector<int> ranks;
  std::vector<Refusal> refusals;  // empty: legal
};

bool same(const std::vector<Refusal>& a, const std::vector<Refusal>& b) {
  return std::ranges::equal(a, b, [](const Refusal& one, const Refusal& other) {
    return one.reason == other.reason && one.needs == other.needs && one.has == other.has;
  });
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "9 whole groups of 16": "{ranks} whole groups of 16" of 9 ranks.
std::string with_any_ranks(const std::string& text, int ranks) {
  const std::string number = std::to_string(ranks);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end == i) {
      out += text[i++];
      continue;
    }
    const std::string found = text.substr(i, end - i);
    out += found == number ? "{ranks}" : found;
    i = end;
  }
  return out;
}

std::vector<Refusal> with_any_ranks(std::vector<Refusal> refusals, int ranks) {
  for (Refusal& refusal : refusals) {
    refusal.needs = with_any_ranks(refusal.needs, ranks);
    refusal.has = with_any_ranks(refusal.has, ranks);
  }
  return refusals;
}

std::vector<Verdict> grouped(const std::vector<RankVerdict>& verdicts) {
  std::vector<Verdict> groups;
  for (const RankVerdict& verdict : verdicts) {
    std::vector<Refusal> refusals = with_any_ranks(verdict.refusals, verdict.ranks);
    const auto known = std::ranges::find_if(
        groups, [&](const Verdict& group) { return same(group.refusals, refusals); });
    if (known == groups.end()) {
      groups.push_back({.ranks = {verdict.ranks}, .refusals = std::move(refusals)});
    } else {
      known->ranks.push_back(verdict.ranks);
    }
  }
  return groups;
}

bool same(const std::vector<RankVerdict>& a, const std::vector<RankVerdict>& b) {
  return std::ranges::equal(a, b, [](const RankVerdict& one, const RankVerdict& other) {
    return one.ranks == other.ranks && same(one.refusals, other.refusals);
  });
}

// Backends that take and refuse the same numbers of ranks for the same reasons.
struct Alike {
  std::vector<std::string> backends;
  LegalSplits splits;
};

bool any_legal(const LegalSplits& splits) {
  const auto legal = [](const RankVerdict& verdict) { return verdict.refusals.empty(); };
  return std::ranges::any_of(splits.tensor, legal) || std::ranges::any_of(splits.expert, legal);
}

std::vector<Alike> alike_backends(const MoeProblem& whole, const DeviceInfo& device,
                                  Engine engine) {
  std::vector<Alike> all;
  const std::vector<int> ranks = examined_ranks(whole.num_experts);
  for (const RankedBackend& ranked : backends_of(engine, whole, device)) {
    LegalSplits splits = legal_splits(*ranked.backend, whole, device, ranks);
    if (!any_legal(splits)) continue;
    const auto known = std::ranges::find_if(all, [&](const Alike& one) {
      return same(one.splits.tensor, splits.tensor) && same(one.splits.expert, splits.expert);
    });
    if (known == all.end()) {
      all.push_back({.backends = {ranked.backend->name}, .splits = std::move(splits)});
    } else {
      known->backends.emplace_back(ranked.backend->name);
    }
  }
  return all;
}

std::string verdicts_text(const char* name, const std::vector<RankVerdict>& verdicts) {
  std::vector<int> legal;
  const RankVerdict* refused = nullptr;
  for (const RankVerdict& verdict : verdicts) {
    if (verdict.refusals.empty()) {
      legal.push_back(verdict.ranks);
    } else if (refused == nullptr) {
      refused = &verdict;
    }
  }
  const std::string text =
      fmt::format("    {} {}", name, legal.empty() ? "none" : ranks_text(legal));
  if (refused == nullptr || legal.empty()) return text + "\n";
  return fmt::format("{}; not {}: {}\n", text, refused->ranks, refusals_text(refused->refusals));
}

Json verdicts_json(const std::vector<RankVerdict>& verdicts) {
  Json list{Json::Array{}};
  for (const Verdict& verdict : grouped(verdicts)) {
    Json entry;
    entry.set("ranks", list_json(verdict.ranks));
    entry.set("legal", verdict.refusals.empty());
    entry.set("refusals", refusals_json(verdict.refusals));
    list.push_back(entry);
  }
  return list;
}

}  // namespace

std::string splits_by_backend_text(const MoeProblem& whole, const DeviceInfo& device,
                                   Engine engine) {
  std::string text;
  for (const Alike& one : alike_backends(whole, device, engine)) {
    text += fmt::format("  {}\n{}{}", fmt::join(one.backends, ", "),
                        verdicts_text("tensor parallel", one.splits.tensor),
                        verdicts_text("expert parallel", one.splits.expert));
  }
  return text.empty() ? "splits   none is legal for any of these backends\n"
                      : "splits that each backend takes, of 1 to 64 ranks and the divisors of the "
                        "experts\n" +
                            text;
}

Json splits_by_backend_json(const MoeProblem& whole, const DeviceInfo& device, Engine engine) {
  Json list{Json::Array{}};
  for (const Alike& one : alike_backends(whole, device, engine)) {
    Json entry;
    entry.set("backends", list_json(one.backends));
    entry.set("tensor_parallel", verdicts_json(one.splits.tensor));
    entry.set("expert_parallel", verdicts_json(one.splits.expert));
    list.push_back(entry);
  }
  return list;
}

}  // namespace fewbit::cli
