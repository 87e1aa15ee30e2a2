// SPDX-License-Identifier: Apache-2.0
// MoE weights of GPTQ or AWQ -> what Marlin kernels read, bit for bit as vLLM prepares them.
//
// For w13 (n = 2 * intermediate_size, or intermediate_size, k = hidden_size) and w2
// (n = hidden_size, k = intermediate_size), with intermediate_size padded to whole tiles and groups
// (each half of w13 for itself):
//   words   i32 [experts, k/16, n * 16 * bits/32]  tiles
//   scales  16-bit [experts, groups, n]            in the order of the kernels
//   zeros   i32 [experts, groups, n * bits/32]
//   bias    [experts, n]
#pragma once

#include <cstdint>
#include <optional>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

enum class MarlinRowOrder { stored, act_order };

struct MarlinMatrix {
  TensorView words;  // i32; gptq [experts, k * bits/32, n], awq [experts, k, n * bits/32]
  // The caller repacks the codes, by marlin_repack_rows for one: words is left aside, and the
  // result has none.
  bool without_words = false;
  TensorView scales;                // f16 or bf16 [experts, groups, n]
  std::optional<TensorView> zeros;  // i32 [experts, groups, n * bits/32], in the source's words
  std::optional<TensorView> bias;   // as scales [experts, n]
  // i32 [experts, k]: groups; read for act_order only, where a matrix without it is as stored. Then
  // k may be a part of a matrix's columns, as a tensor-parallel rank holds them, and groups are
  // those of the whole matrix: engines run the result with is_k_full = false.
  std::optional<TensorView> g_idx;

  bool sorted(MarlinRowOrder order) const { return order == MarlinRowOrder::act_order && g_idx; }
};

struct MarlinInput {
  MarlinCodes codes;
  // As vLLM: the order of w13's scales is chosen by the intermediate size, so with that at most the
  // group size and several groups along hidden_size, its kernels read other scales than were meant;
  // and marlin_fp8_code_as_vllm.
  MarlinRules rules = MarlinRules::exact;
  MarlinRowOrder row_order = MarlinRowOrder::stored;  // act_order: gptq, 16-bit activations
  std::int64_t group_size = -1;                       // -1: one group over k
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  Gating gating = Gating::gated;
  MarlinMatrix w13;
  MarlinMatrix w2;
};

struct MarlinMatrixPlan {
  Dims stored;
  Dims dims;  // padded
  std::int64_t stored_groups = 0;
  std::int64_t groups = 0;
  std::int64_t parts_n = 1;
};
struct MarlinPlan {
  std::int64_t experts = 0;
  MarlinMatrixPlan w13;
  MarlinMatrixPlan w2;
};
// Checks all but the values of g_idx. Errors: invalid_argument (where: the tensor) for dtypes,
// shapes and sizes; unsupported for act-order together with AWQ, 8-bit activations or, of w2,
// padding, and for 8-bit codes with FP8 activations.
Result<MarlinPlan> plan_marlin(const MarlinInput& input);

struct MarlinMatrixResult {
  Tensor words;  // empty without
  Tensor scales;
  Tensor zeros;  // empty without
  Tensor bias;   // empty without
  Tensor g_idx;  // of act-order: i32 [experts, k], sorted
  Tensor order;  // of act-order: i32 [experts, k], stored column of each column
  std::optional<float> activation_factor;  // int8 activations and several groups: multiply into
                                           // the activations' scales
};
struct MarlinResult {
  MarlinMatrixResult w13;
  MarlinMatrixResult w2;
};
// Errors: those of plan_marlin; invalid_argument for a group outside the scales, and for codes and
// scales that FP8 kernels can't hold; limit (memory can't be had).
Result<MarlinResult> prepare_marlin(const MarlinInput& input, Executor& executor);

// Scales for int8 activations, in place: their share of the largest one as i16 of 1/4096 in the
// bits of the 16-bit type, every step rounded to it. Returns the factor, largest / 4096.
float marlin_act_int8_scales(DType dtype, std::span<std::byte> scales);

}  // namespace fewbit
