// SPDX-License-Identifier: Apache-2.0
#include "prepared/expert_slice.hpp"

#include <fmt/format.h>

#include <numeric>

#include "canonical/storage.hpp"
#include "core/checked.hpp"
#include "core/counted.hpp"
#include "select/split_axis.hpp"

namespace fewbit {
namespace {

Error bad(const std::string& where, std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), where};
}

Result<void> check_ranks(const PrepareSplit& split, const std::string& layer) {
  if (split.tensor_ranks < 1 || split.expert_ranks < 1) {
    return bad(layer,
               fmt::format("{} tensor ranks and {} expert ranks, expected at least 1 of each",
                           split.tensor_ranks, split.expert_ranks));
  }
  const std::int64_t ranks = std::int64_t{split.tensor_ranks} * split.expert_ranks;
  if (split.rank >= 0 && split.rank < ranks) return {};
  return bad(layer + " rank", fmt::format("rank {}, but {} x {} are {}; legal: {}", split.rank,
                                          counted(split.tensor_ranks, "tensor rank"),
                                          counted(split.expert_ranks, "expert rank"), ranks,
                                          ranks == 1 ? "0" : fmt::format("0 to {}", ranks - 1)));
}

Result<CutPart> deal(const Cut& cut, Dealing dealing, int rank, const char* parts,
                     const std::string& where) {
  if (can_deal(cut, dealing)) return dealt_part(cut, dealing, rank);
  return bad(where, undealt_text(cut, dealing, parts));
}

std::vector<float> part(const std::vector<float>& bias, const ExpertSlice& slice) {
  if (bias.empty()) return {};
  return {bias.begin() + slice.first_feature, bias.begin() + slice.first_feature + slice.features};
}

// "model.layers.0.mlp.experts expert 3 down"
Result<QuantizedTensor> named(Result<QuantizedTensor> tensor, const std::string& where,
                              const char* matrix) {
  if (tensor) return tensor;
  return Error{tensor.error().code, tensor.error().what, fmt::format("{} {}", where, matrix)};
}

}  // namespace

Result<ExpertSlice> plan_slice(const ExpertWeights& first, std::int64_t experts,
                               const SliceRequest& request, const std::string& where) {
  const PrepareSplit& split = request.split;
  FEWBIT_TRY(check_ranks(split, where));
  std::int64_t unit =
      std::lcm(feature_unit(first.up.scheme, first.down.scheme), column_unit(first.down));
  if (first.gate) unit = std::lcm(unit, feature_unit(first.gate->scheme, first.down.scheme));
  unit = split.tensor_ranks == 1 ? 1 : std::lcm(unit, request.unit);
  const Cut cut{.size = first.up.n, .unit = unit, .ranks = split.tensor_ranks};
  const int tensor_rank = split.rank % split.tensor_ranks;
  FEWBIT_TRY(const CutPart features, deal(cut, request.dealing, tensor_rank,
                                          "intermediate features", where + " tensor_ranks"));
  const bool whole_units = request.dealing == Dealing::whole_units;
  FEWBIT_TRY(const CutPart of_experts,
             deal({.size = experts, .unit = 1, .ranks = split.expert_ranks},
                  whole_units ? Dealing::whole_units : Dealing::even,
                  split.rank / split.tensor_ranks, "experts", where + " expert_ranks"));
  return ExpertSlice{.first_expert = of_experts.begin,
                     .experts = of_experts.end - of_experts.begin,
                     .all_experts = experts,
                     .first_feature = features.begin,
                     .features = features.end - features.begin,
                     .padded_features = dealt_size(cut, request.dealing, tensor_rank),
                     .all_features = first.up.n};
}

Result<ExpertWeights> slice_expert(const ExpertWeights& expert, const ExpertSlice& slice,
                                   const std::string& where) {
  if (slice.features == slice.all_features) return expert;
  const auto rows = [&](const QuantizedTensor& tensor, const char* name) {
    return named(slice_rows(tensor, slice.first_feature, slice.features), where, name);
  };
  ExpertWeights out;
  FEWBIT_TRY(out.up, rows(expert.up, "up"));
  if (expert.gate) {
    FEWBIT_TRY(out.gate, rows(*expert.gate, "gate"));
  }
  FEWBIT_TRY(out.down,
             named(slice_columns(expert.down, slice.first_feature, slice.features), where, "down"));
  out.gate_bias = part(expert.gate_bias, slice);
  out.up_bias = part(expert.up_bias, slice);
  if (slice.first_feature == 0) {
    out.down_bias = expert.down_bias;
  } else {
    out.down_bias.assign(expert.down_bias.size(), 0.0F);
  }
  return out;
}

}  // namespace fewbit
