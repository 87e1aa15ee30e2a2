// SPDX-License-Identifier: Apache-2.0
// Among how many ranks a model can be divided: tensor parallel (each matrix cut along rows or
// columns) and expert parallel (whole experts).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fewbit/scheme.hpp"

namespace fewbit {

enum class SplitFit {
  even,    // every rank gets the same
  uneven,  // whole groups, but not as many for every rank
  none,
};
const char* split_fit_name(SplitFit fit);

// One dimension cut among ranks, in units that must stay whole: groups or blocks that share a
// scale, packed words.
struct Cut {
  std::int64_t size = 0;
  std::int64_t unit = 1;
  int ranks = 1;
};
SplitFit fit_of(const Cut& cut);
// The part of a rank, whole units, the first ranks one more where they don't divide. Precondition:
// fit_of(cut) is not none, 0 <= rank < ranks.
struct CutPart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
CutPart part_of(const Cut& cut, int rank);
// How many ranks a page examines: 1 to 64.
constexpr int most_ranks = 64;
// 1 to most_ranks, and beyond them the divisors of `experts`.
std::vector<int> examined_ranks(std::int64_t experts = 0);
// "1 to 8, 16": runs of three and more are joined.
std::string ranks_text(std::span<const int> ranks);
// How ranks get their parts.
enum class Dealing {
  even,         // as many for every rank; a unit may be cut
  whole_units,  // part_of
  // ceil(units / ranks) units each, the last rank what is left, padded to as many; only where the
  // size divides, and no rank is left without any.
  padded_units,
};
bool can_deal(const Cut& cut, Dealing dealing);
// The part of a rank. Preconditions: can_deal, 0 <= rank < ranks.
CutPart dealt_part(const Cut& cut, Dealing dealing, int rank);
// What the matrices of that rank have: its part, with its padding.
std::int64_t dealt_size(const Cut& cut, Dealing dealing, int rank);
// All numbers of ranks that a dimension can be dealt to, whole units.
std::string legal_ranks_text(std::int64_t size, std::int64_t unit, Dealing dealing);
// Why a dimension can't be dealt, and to how many ranks it can: "9 ranks can't share 128
// intermediate features: they are 8 runs of 16, at least one a rank; legal: 1 to 8".
// Precondition: not can_deal.
std::string undealt_text(const Cut& cut, Dealing dealing, std::string_view parts);

// "1536 / 8 = 192, 1.5 groups of 128; 12 whole groups can be dealt as 4 x 2 and 4 x 1".
std::string cut_text(const Cut& cut, std::string_view unit_name);

// Sizes that no single matrix has. Empty where the config does not state them.
struct SplitSizes {
  std::optional<std::int64_t> heads;
  std::optional<std::int64_t> kv_heads;
  std::optional<std::int64_t> vocab;
  std::optional<std::int64_t> experts;
};
SplitSizes read_split_sizes(const Checkpoint& checkpoint);

struct SplitReason {
  SplitFit fit = SplitFit::even;  // even: a remark
  std::string what;               // "expert down_proj (46 modules)"
  std::string why;
};
struct SplitPlan {
  int ranks = 1;
  SplitFit fit = SplitFit::even;          // the worst of its reasons
  SplitFit experts_fit = SplitFit::even;  // of the routed experts alone
  std::vector<SplitReason> reasons;
};

// Experts that the config or, without it, the tensors count; 0: none.
std::int64_t expert_count(const Identified& identified, const SplitSizes& sizes);

// Rows of q, k, v, gate and up are cut, columns of o and down; routers and norms are held by all.
std::vector<SplitPlan> tensor_splits(const Identified& identified, const SplitSizes& sizes,
                                     std::span<const int> ranks);
// Empty when the model has no routed experts.
std::vector<SplitPlan> expert_splits(const Identified& identified, const SplitSizes& sizes,
                                     std::span<const int> ranks);

}  // namespace fewbit
