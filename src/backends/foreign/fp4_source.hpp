// SPDX-License-Identifier: Apache-2.0
// NVFP4 and MXFP4 experts as engines' loaders have them before their kernels' order: rows of codes
// and of block scales, padded, one global scale for gate and up.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "backends/foreign/expert_matrices.hpp"
#include "backends/foreign/rules.hpp"
#include "layout/place.hpp"
#include "layout/row_order.hpp"

namespace fewbit::foreign {

// Sizes with the zeros that the kernels' tiles ask for.
struct Fp4Sizes {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  Gating gating = Gating::gated;

  Dims w13() const { return {.n = intermediate * (gating == Gating::gated ? 2 : 1), .k = hidden}; }
  Dims w2() const { return {.n = hidden, .k = intermediate}; }
};
Gating gating_of(const MoeProblem& problem);
// Both sizes rounded up to these multiples.
Fp4Sizes padded_sizes(const MoeProblem& problem, std::int64_t hidden, std::int64_t intermediate);

struct Fp4Matrix {
  OwnedTensor codes;   // u8 [1, n, k/2]
  OwnedTensor scales;  // e4m3 [1, n, k/16] or e8m0 [1, n, k/32]
};
struct Fp4Source {
  Fp4Matrix w13;
  Fp4Matrix w2;
  std::array<float, 2> globals{};  // w13, w2; 1 without
};
// Errors unsupported: gate and up whose global scales stay two; MXFP4 with a global scale.
Result<Fp4Source> fp4_source(const ExpertWeights& expert, const Fp4Sizes& sizes, FirstPart first);

bool is_nvfp4(const MoeProblem& problem);
// Columns of a block scale: 16 of NVFP4, 32 of MXFP4.
std::int64_t fp4_group(const MoeProblem& problem);
// f32 [2], of w13 and w2: of NVFP4 only.
Result<void> plan_globals(const MoeProblem& problem, MoePlan& plan);
Result<void> put_globals(const MoeProblem& problem, const MoePlan& plan, const Fp4Source& source,
                         ExpertSpans to);
// Error inconsistent: they are not the source's.
Result<void> undo_globals(const MoeProblem& problem, const MoePlan& plan, const Fp4Source& source,
                          ConstExpertSpans from);

// Error unsupported: gate and up, or down, are of another kind.
Result<void> check_kind(const MoeProblem& problem, Set<WeightKind> kinds, const char* expected);
// Error unsupported: experts whose gate and up have two global scales that stay two.
Result<void> check_one_global(const MoeProblem& problem);

struct PlannedPart {
  const char* name;
  const char* layout;
  std::string scale_format;
  DType dtype;
  Shape shape;
};
Result<void> add_part(MoePlan& plan, const Scheme& scheme, PlannedPart part);
// An expert's share of a buffer of the plan.
std::span<std::byte> share_of(const MoePlan& plan, ExpertSpans to, std::string_view name);

}  // namespace fewbit::foreign
