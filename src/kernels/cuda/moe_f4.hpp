// SPDX-License-Identifier: Apache-2.0
// Fused MoE layer over experts of low-bit weights, for few tokens an expert: one launch.
//
//   out[t] = sum over slots j of  weight[t,j] * (W2[e] act(W1[e] x[t] + b1[e]) + b2[e])
//   e = expert of (t, j), through the map where there is one; products accumulated in f32, act
//   rounded to the type of x, out rounded once. With the router weight on the input it multiplies
//   W1[e] x[t] instead.
//
// Every thread block streams its share of the weights through a ring in shared memory, from the
// first microsecond to the last: the rows of fc1, then those of fc2. A share of fc2 waits only for
// the fc1 rows of its expert. Blocks wait for each other, so the launch is cooperative.
#pragma once

#include <cstdint>

#include "core/hd.hpp"
#include "kernels/cuda/nf3_table.hpp"
#include "kernels/cuda/stream_plan.hpp"
#include "layout/cuda_int_cells.hpp"
#include "moe/activation.hpp"

namespace fewbit::cuda {

// How the weights of a layer lie in cells: e2m1 codes with an e4m3 scale for 16 k or an e8m0 scale
// for 32 (layout cuda_f4_cells), int4, int8, ternary or NF3 codes with 16-bit scales
// (cuda_int_cells), or e4m3 codes (cuda_f8_cells) with an e8m0 scale for 32 k, or an f32 scale for
// blocks of 128 x 128, for a row, or only a global one.
enum class CellKind { nvfp4, mxfp4, int4, int8, f8, mxfp8, ternary, nf3 };
// The kernels multiply scales into sums rather than into weights, and have fewer registers left.
constexpr bool scaled_sums(CellKind kind) {
  return kind != CellKind::nvfp4 && kind != CellKind::mxfp4;
}
// Of layout cuda_int_cells.
constexpr bool has_int_cells(CellKind kind) {
  return kind == CellKind::int4 || kind == CellKind::int8 || kind == CellKind::ternary ||
         kind == CellKind::nf3;
}
// What e4m3 codes have beside a global scale.
enum class F8Scales { block, row, tensor };
struct CellFormat {
  CellKind kind = CellKind::nvfp4;
  CudaIntForm ints = {};          // of cuda_int_cells
  bool f16_scales = false;        // likewise; else bf16
  F8Scales f8 = F8Scales::block;  // of f8
  bool operator==(const CellFormat&) const = default;

  // Cells of 32 k come in multiples of so many.
  constexpr int cell_multiple() const { return has_int_cells(kind) ? 4 : 1; }
  constexpr int cell_bytes() const {
    switch (kind) {
      case CellKind::nvfp4:
        return 576;
      case CellKind::mxfp4:
        return 544;
      case CellKind::f8:
        return 1040;
      case CellKind::mxfp8:
        return 1056;
      default:
        return ints.quad_bytes() / 4;
    }
  }
  constexpr bool scaled_sums() const { return cuda::scaled_sums(kind); }
  constexpr int most_token_tiles() const { return scaled_sums() ? 2 : 4; }
};
inline constexpr CellFormat nvfp4_cells{.kind = CellKind::nvfp4};
inline constexpr CellFormat mxfp4_cells{.kind = CellKind::mxfp4};

// swiglu: gate * sigmoid(alpha * gate) * (up + beta), which with 1 and 0 is silu(gate) * up.
// relu2 has no gate: fc1's halves are the upper and the lower rows of up.
enum class F4Activation { swiglu, gelu, gelu_tanh, relu2 };
FEWBIT_HD constexpr bool f4_gated(F4Activation kind) { return kind != F4Activation::relu2; }

// What a layer computes besides its products.
struct MoeF4Rule {
  F4Activation activation = F4Activation::swiglu;
  ActivationConstants constants;  // alpha, beta, and the limit that clamps gate and up
  bool router_weight_on_input = false;
};

// Of x, and of the activated rows between the products.
enum class ActivationType { bf16, f16 };
// f16 holds what codes mean, and their scales are not in it; the table of NF3 is one of bf16.
constexpr bool takes_f16(CellKind kind) { return scaled_sums(kind) && kind != CellKind::nf3; }

// What results are rounded to.
enum class OutType { bf16, f16, f32 };

// silu(gate) * up, with the router weight on the output.
inline bool is_plain(const MoeF4Rule& rule) {
  const ActivationConstants& c = rule.constants;
  return rule.activation == F4Activation::swiglu && c.alpha == 1.0F && c.beta == 0.0F &&
         c.limit == ActivationConstants{}.limit && !rule.router_weight_on_input;
}

// Device pointers, 16-byte aligned.
struct MoeF4Args {
  const std::uint8_t* w13 = nullptr;   // [experts] matrices in the format's cells: [gate; up]
  const std::uint8_t* w2 = nullptr;    // [experts], down
  const float* global13 = nullptr;     // [experts, 2] gate, up; with f4_global_factor
  const float* global2 = nullptr;      // [experts]; likewise
  const float* row_scale13 = nullptr;  // of f8: [experts, 2, rows of a half] or none
  const float* row_scale2 = nullptr;   // [experts, hidden] or none
  const float* bias13 = nullptr;       // [experts, 2, rows of a half] or none
  const float* bias2 = nullptr;        // [experts, hidden] or none
  const void* x = nullptr;             // [tokens, hidden]; |x| < 2^63 for e8m0_k32
  ActivationType x_type = ActivationType::bf16;
  const std::int32_t* topk_ids = nullptr;  // [tokens, top_k]; others than [0, experts) add nothing
  const std::int32_t* expert_map = nullptr;  // [map_size] id -> expert, others add nothing; or none
  int map_size = 0;
  const float* topk_weights = nullptr;  // [tokens, top_k]
  void* out = nullptr;                  // [tokens, hidden]
  OutType out_type = OutType::bf16;
  void* activated = nullptr;          // scratch, as x, [tokens * top_k, intermediate]
  float* products = nullptr;          // scratch, f32 [tokens * top_k, hidden]
  std::uint32_t* counters = nullptr;  // plan.counters zeros; every run leaves them zero
  MoeF4Rule rule;
  bool rows_placed = false;  // of the grouped kernels: the router has divided the rows
  CellFormat format;         // set by the launch
};

// What a global scale is multiplied by before it is passed: the kernels keep weights times 2^-7,
// sums times 2^-62, or NF3's magnitudes times 10^4.
constexpr float f4_global_factor(const CellFormat& format) {
  if (format.kind == CellKind::nf3) return Nf3Table::factor;
  if (format.scaled_sums()) return 1.0F;
  return format.kind == CellKind::nvfp4 ? 0x1p7F : 0x1p62F;
}

// Returns a cudaError_t; nothing is launched when it isn't 0. stream: a cudaStream_t. Biases, and
// rules that aren't plain, are for plans of one token tile.
int launch_moe_f4(const CellFormat& format, const StreamPlan& plan, const MoeF4Args& args,
                  void* stream);

}  // namespace fewbit::cuda
