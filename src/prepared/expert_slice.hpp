// SPDX-License-Identifier: Apache-2.0
// Which part of a layer's experts one rank holds, and that part of an expert.
#pragma once

#include <cstdint>
#include <string>

#include "fewbit/prepare.hpp"
#include "fewbit/quantized.hpp"
#include "select/split_plan.hpp"

namespace fewbit {

struct ExpertSlice {
  std::int64_t first_expert = 0;
  std::int64_t experts = 0;
  std::int64_t all_experts = 0;
  std::int64_t first_feature = 0;  // intermediate: rows of gate and up, columns of down
  std::int64_t features = 0;
  std::int64_t padded_features = 0;  // what the matrices of the rank have
  std::int64_t all_features = 0;

  bool whole() const { return experts == all_experts && features == all_features; }
};

// `whole_units`: features are cut on boundaries of groups, blocks and bytes; the first ranks hold a
// unit or an expert more where they can't be dealt evenly. `even`: as many for every rank, whether
// a group is cut or not. `padded_units`: whole groups, the last rank fewer; experts evenly. The sum
// of all tensor ranks' outputs is the layer's; each expert is on one expert rank. Errors
// invalid_argument: ranks below 1, a rank outside of them, sizes that can't be dealt so (with the
// legal numbers); the last word of Error::where is the field of `split` at fault.
struct SliceRequest {
  PrepareSplit split;
  Dealing dealing = Dealing::whole_units;
  std::int64_t unit = 1;  // features dealt together, if more than have to be
};
Result<ExpertSlice> plan_slice(const ExpertWeights& first, std::int64_t experts,
                               const SliceRequest& request, const std::string& where);
// The features of one expert; `where` is its name. Only the first tensor rank adds the bias of
// down. Errors unsupported, with the name of the matrix: it can't be cut there.
Result<ExpertWeights> slice_expert(const ExpertWeights& expert, const ExpertSlice& slice,
                                   const std::string& where);

}  // namespace fewbit
