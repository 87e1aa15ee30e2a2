// SPDX-License-Identifier: Apache-2.0
// MoE weights with 4-bit codes -> what packed W4A16 kernels read, bit for bit as the engines
// prepare them (b12x `prepare_w4a16_packed_weights` and the functions it stands for).
//
// For w13 (fc1: n = 2 * intermediate_size or intermediate_size, k = hidden_size) and w2 (fc2:
// n = hidden_size, k = intermediate_size):
//   tiles   [experts, k/16, n/64 * 512 bytes]  B12xPacked; w13 rows in the order [gate; up]
//   scales  [experts, k/group, n] bytes        ByteScaleGrid, encoded as w4a16_scale.hpp says
//   global  [experts] f32
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

enum class W4a16Source {
  modelopt_nvfp4,      // e4m3 scales for 16 k, global scales multiply
  compressed_tensors,  // e4m3 scales for 16 k, global scales divide
  fp4_e8m0_k32,        // e8m0 scales for 32 k, global scales multiply
};
// The engines' names, any case. Error invalid_argument lists them.
Result<W4a16Source> w4a16_source_from_name(std::string_view name);
std::int64_t w4a16_group_size(W4a16Source source);

// Whether the activation ("silu", "swigluoai_uninterleave", "relu2"; exact spelling) has a gate.
// Error unsupported: the kernels have no other.
Result<Gating> w4a16_gating(std::string_view activation);

enum class BlockScaleStorage { plain, swizzled_128x4 };

// NVFP4: which block scales share the power of two that keeps small ones.
enum class W4a16Factors {
  of_all_experts,  // as b12x: one, and none for f16 activations
  of_each_expert,  // experts differ in range; its global scale repays it
};

struct W4a16Matrix {
  TensorView codes;          // u8 [experts, n, k/2], even k in the low nibble
  TensorView block_scales;   // [experts, n, k/group], or that padded and swizzled; one byte each
  TensorView global_scales;  // f32 [experts]
};

struct W4a16Input {
  W4a16Source source = W4a16Source::modelopt_nvfp4;
  BlockScaleStorage block_scale_storage = BlockScaleStorage::swizzled_128x4;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  Gating gating = Gating::gated;
  W13Order w13_order = W13Order::up_gate;  // as stored
  DType activation_dtype = DType::bf16;    // or f16
  W4a16Factors factors = W4a16Factors::of_all_experts;
  W4a16Matrix w13;
  W4a16Matrix w2;
};

struct W4a16MatrixPlan {
  Dims dims;
  Dims scale_grid;                // n, groups along k
  std::int64_t tiles_bytes = 0;   // of all experts
  std::int64_t scales_bytes = 0;  // of all experts
};
struct W4a16Plan {
  std::int64_t experts = 0;
  W4a16MatrixPlan w13;
  W4a16MatrixPlan w2;
};
// Checks everything that can be wrong with the input, without reading its data.
// Errors invalid_argument (where: the tensor): dtype, rank, shape or byte count (found and
// expected), sizes that the tiles do not divide.
Result<W4a16Plan> plan_w4a16(const W4a16Input& input);

struct W4a16MatrixOutput {
  // Each may be exactly the memory of its source (codes, block scales unless swizzling padded them,
  // global scales), which is then replaced; one expert's share is the extra memory. No other
  // overlap.
  std::span<std::byte> tiles;
  std::span<std::byte> scales;
  std::span<float> global_scales;
};
struct W4a16Output {
  W4a16MatrixOutput w13;
  W4a16MatrixOutput w2;
};

// What the engines' encoding did to scales without a word. All counts are over all experts.
struct W4a16ScaleReport {
  float factor = 1.0F;         // nvfp4: shared power of two
  std::vector<float> factors;  // of each expert; empty where one is shared
  std::int64_t block_scales = 0;
  std::int64_t nan_scales = 0;         // became a finite scale
  std::int64_t negative_scales = 0;    // became 0
  std::int64_t flushed_scales = 0;     // positive, became 0: too small beside the largest
  std::int64_t clamped_scales = 0;     // e8m0 above 2^120, became 2^120 (NaN not counted)
  std::int64_t cut_scales = 0;         // native form: have no column in the result
  std::int64_t nonfinite_globals = 0;  // the stored global scale is NaN or infinite
  std::int64_t flushed_globals = 0;    // not zero, became 0
};
struct W4a16Report {
  W4a16ScaleReport w13;
  W4a16ScaleReport w2;
};

// Errors: those of plan_w4a16; invalid_argument for outputs of another size (both numbers) or that
// overlap; limit (scratch can't be had). Nothing is written before everything was checked.
Result<W4a16Report> prepare_w4a16(const W4a16Input& input, const W4a16Output& output, IsaLevel isa,
                                  Executor& executor);

}  // namespace fewbit
