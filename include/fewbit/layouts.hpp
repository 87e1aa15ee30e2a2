// SPDX-License-Identifier: Apache-2.0
// Weights in memory -> what other engines' W4A16 kernels read, function by function, for engines
// that load weights themselves. (Whole checkpoints: prepare.hpp.) All of them check every size and
// dtype before anything is written, run on any executor, and give the same bytes on any machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fewbit/dims.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// --- rows of fused gate/up weights (w13); kernels read gate rows first, then up rows

// Of the rows as they are stored.
enum class W13Order { up_gate, gate_up };

// "w13" and "up_gate" (up rows first), "w31" and "gate_up" (gate rows first), any case.
// Error invalid_argument names the known ones.
Result<W13Order> w13_order_from_name(std::string_view name);

// Whether fc1 has gate and up rows (2 * intermediate_size) or one matrix.
enum class Gating { gated, ungated };

// --- packed W4A16
//
// MoE weights with 4-bit codes -> what packed W4A16 kernels read, bit for bit as the engines
// prepare them (b12x `prepare_w4a16_packed_weights` and the functions it stands for).
//
// For w13 (fc1: n = 2 * intermediate_size or intermediate_size, k = hidden_size) and w2 (fc2:
// n = hidden_size, k = intermediate_size):
//   tiles   [experts, k/16, n/64 * 512 bytes]: of 16 k x 64 n; w13 rows in the order [gate; up]
//   scales  [experts, k/group, n] bytes, in the kernels' order of columns. e4m3: 128 * scale *
//           factor as 5 exponent bits (bias 15) and 3 of mantissa; e8m0: itself, at most 247
//   global  [experts] f32, the source's times 2^119 / factor (f16 activations: 2^7 / factor); of
//           e8m0 the source's own

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

// --- native W4A16
//
// MoE weights with 4-bit codes for W4A16 kernels that read the codes as they are stored ("modelopt"
// layout): only scales are prepared, bit for bit as the engines do it (b12x
// `prepare_w4a16_modelopt_native_weights` and `prepare_w4a16_e8m0_native_weights`).
//
// Kernel column n of w13 reads row to_gate_up(...).source(n) of the codes; w2 is never reordered.
// Each matrix has two sets of scales: those of the tile kernels and those of the micro kernel for
// a few tokens.

// What to do where the columns do not fill the blocks of a scale order.
enum class UnevenColumns {
  refuse,
  cut,  // as b12x: scales past the last column of a permuted block are lost, zeros take their place
};

struct W4a16NativeMatrixPlan {
  Dims dims;
  Dims scale_grid;                 // n, groups along k; the last group may cover fewer k
  std::int64_t scale_columns = 0;  // of the prepared grid: n, padded where the kernels need it
  bool own_micro_scales = false;   // the micro kernel's grid differs: e8m0 rows that were reordered
};
struct W4a16NativePlan {
  std::int64_t experts = 0;
  W4a16NativeMatrixPlan w13;
  W4a16NativeMatrixPlan w2;
};

// Sources modelopt_nvfp4 (k in groups of 16) and fp4_e8m0_k32. There hidden_size is a multiple of
// 32; intermediate_size of 8: when it is not one of 32, w2 has ceil(intermediate_size / 32) scale
// groups and w13 has its scale columns padded to a multiple of 64.
// Errors as plan_w4a16, and unsupported for a source without a native form.
Result<W4a16NativePlan> plan_w4a16_native(const W4a16Input& input, UnevenColumns uneven);

struct W4a16NativeScales {
  Tensor scales;               // [experts, groups, scale_columns] bytes, f8_e4m3 or f8_e8m0
  Tensor global_scales;        // f32 [experts]
  Tensor micro_scales;         // the same memory as scales unless own_micro_scales
  Tensor micro_global_scales;  // f32 [experts]
};
struct W4a16NativeResult {
  W4a16NativeScales w13;
  W4a16NativeScales w2;
  W4a16Report report;
};
// Errors: those of plan_w4a16_native; limit (memory can't be had).
Result<W4a16NativeResult> prepare_w4a16_native(const W4a16Input& input, UnevenColumns uneven,
                                               Executor& executor);

// --- NF3 codes -> what the W4A16 kernels of b12x read (`prepare_nf3_moe_weights`)

enum class Nf3ScaleRounding {
  nearest,   // to even, at most 30
  truncate,  // as b12x: down to 1/8 too small, and 31.9921875 up to 32 become the byte 0x80, which
             // kernels decode 2^112 too large
};

struct Nf3Matrix {
  TensorView codes;         // u8, i8, i32 or i64 [experts, n, k], each 0 to 7, rows in kernel order
  TensorView scales;        // f32 [experts, n, k/32]
  std::int64_t tile_n = 0;  // columns of a thread block: a multiple of 64 that divides n
};

struct Nf3Input {
  std::int64_t hidden_size = 0;        // a multiple of 64
  std::int64_t intermediate_size = 0;  // a multiple of 32
  Gating gating = Gating::gated;
  DType activation_dtype = DType::bf16;  // no other
  Nf3ScaleRounding rounding = Nf3ScaleRounding::nearest;
  Nf3Matrix w13;
  Nf3Matrix w2;
};

struct Nf3MatrixResult {
  Tensor words;                      // i32 [experts, 3 * n * k / 32]
  Tensor scales;                     // u8 [experts, k/32, n]
  Tensor global_scales;              // f32 [experts], each 2^116
  std::int64_t tile_n = 0;           // that the words are packed for; no other may read them
  std::int64_t raised_scales = 0;    // not 0 and below the smallest
  std::int64_t negative_scales = 0;  // of these
};
struct Nf3Result {
  Nf3MatrixResult w13;
  Nf3MatrixResult w2;
};

// Errors: invalid_argument (where: the tensor): dtype, shape, sizes that tiles or groups do not
// divide, the first code outside 0 to 7, the first scale that is not below 32 (NaN too); limit
// (memory can't be had).
Result<Nf3Result> prepare_nf3(const Nf3Input& input, Executor& executor = serial_executor());

// The codes [n, k] of one expert, one a byte. Errors: invalid_argument (expert or number of codes).
Result<void> unpack_nf3(const Nf3MatrixResult& matrix, std::int64_t expert,
                        std::span<std::uint8_t> codes);

// --- rows as e4m3 for kernels with FP8 matrix instructions, as Atlas converts them at load. This
// rounds: `fewbit convert` never does it by itself.

// weight ~ code * scale, the scale of its row.
struct Fp8Rows {
  Tensor codes;   // f8_e4m3 [n, k]
  Tensor scales;  // f32 [n]; empty without
};

// Memory of the caller: n * k codes, n scales or none.
struct Fp8Target {
  std::span<std::byte> codes;
  std::span<float> scales;
};

// The scale is the row's largest magnitude / 448, 1 for a row of zeros; NaN are not counted and
// become NaN. Each code is the nearest to weight * (1 / scale). weights: bf16 [n, k].
// Errors invalid_argument (where: the tensor): dtype, shape; limit (memory can't be had).
Result<Fp8Rows> bf16_to_fp8_rows(const TensorView& weights, Dims dims,
                                 Executor& executor = serial_executor());
// The same without new memory. Errors: result (both numbers) too.
Result<void> bf16_to_fp8_rows(const TensorView& weights, Dims dims, const Fp8Target& to,
                              Executor& executor = serial_executor());

struct Nvfp4Rows {
  TensorView codes;   // u8 [n, k/2], the even k low
  TensorView scales;  // f8_e4m3 [n, k/16]
  float global_scale = 1.0F;
};

// Fp8RowScale::none is as Atlas has it, the weights themselves as e4m3: what is below 2^-10 becomes
// 0, and below 2^-6 the step is 2^-9. per_row has scales as above: no weight is near the smallest
// code because all of its row are.
enum class Fp8RowScale { none, per_row };
// Errors: those above; k that is no multiple of 16.
Result<Fp8Rows> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale scale,
                                  Executor& executor = serial_executor());
Result<void> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale scale,
                               const Fp8Target& to, Executor& executor = serial_executor());

}  // namespace fewbit
