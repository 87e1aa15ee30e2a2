// SPDX-License-Identifier: Apache-2.0
// The names and the checks of prepare_w4a16.
#include <array>
#include <string>
#include <utility>

#include "core/ascii.hpp"
#include "fewbit/layouts.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/check_tensor.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

Result<W4a16MatrixPlan> plan_matrix(const W4a16Input& input, const std::string& name,
                                    const W4a16Matrix& matrix, std::int64_t experts, Dims dims) {
  const std::int64_t group = w4a16_group_size(input.source);
  FEWBIT_TRY(check_tensor(name + " codes", matrix.codes, DType::u8, {experts, dims.n, dims.k / 2}));
  if (!B12xPacked::accepts(dims)) {
    return bad(name + " codes", "n x k is " + std::to_string(dims.n) + " x " +
                                    std::to_string(dims.k) + ", expected multiples of 64 and 16");
  }
  if (dims.k % group != 0) {
    return bad(name + " codes", "k is " + std::to_string(dims.k) + ", expected a multiple of " +
                                    std::to_string(group) + ", the group of a block scale");
  }
  W4a16MatrixPlan plan;
  plan.dims = dims;
  plan.scale_grid = {.n = dims.n, .k = dims.k / group};
  plan.tiles_bytes = experts * B12xPacked::bytes(dims);
  plan.scales_bytes = experts * plan.scale_grid.n * plan.scale_grid.k;

  const Dims stored = input.block_scale_storage == BlockScaleStorage::plain
                          ? plan.scale_grid
                          : Swizzle128x4<8>::padded(plan.scale_grid);
  const DType scale_dtype =
      input.source == W4a16Source::fp4_e8m0_k32 ? DType::f8_e8m0 : DType::f8_e4m3;
  FEWBIT_TRY(check_scale_bytes(name + " block scales", matrix.block_scales, scale_dtype,
                               {experts, stored.n, stored.k}));
  FEWBIT_TRY(check_tensor(name + " global scales", matrix.global_scales, DType::f32, {experts}));
  return plan;
}

}  // namespace

Result<W4a16Source> w4a16_source_from_name(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, W4a16Source>, 3> known = {
      {{"modelopt_nvfp4", W4a16Source::modelopt_nvfp4},
       {"compressed_tensors", W4a16Source::compressed_tensors},
       {"fp4_e8m0_k32", W4a16Source::fp4_e8m0_k32}}};
  const std::string lower = lower_ascii(name);
  for (const auto& [known_name, source] : known) {
    if (lower == known_name) return source;
  }
  std::string what = "source format '" + std::string(name) +
                     "', expected 'modelopt_nvfp4', 'compressed_tensors' or 'fp4_e8m0_k32'";
  if (lower == "mxfp4_native") what += " (which is what mxfp4_native meant)";
  return bad("", std::move(what));
}

std::int64_t w4a16_group_size(W4a16Source source) {
  return source == W4a16Source::fp4_e8m0_k32 ? 32 : 16;
}

Result<Gating> w4a16_gating(std::string_view activation) {
  if (activation == "silu" || activation == "swigluoai_uninterleave") return Gating::gated;
  if (activation == "relu2") return Gating::ungated;
  return Error{ErrorCode::unsupported,
               "activation '" + std::string(activation) +
                   "', W4A16 kernels have 'silu', 'swigluoai_uninterleave' and 'relu2'",
               ""};
}

Result<W4a16Plan> plan_w4a16(const W4a16Input& input) {
  if (input.activation_dtype != DType::bf16 && input.activation_dtype != DType::f16) {
    return bad("activation dtype",
               std::string(dtype_name(input.activation_dtype)) + ", expected bf16 or f16");
  }
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  const Shape& codes_shape = input.w13.codes.shape;
  if (codes_shape.size() != 3 || codes_shape[0] <= 0) {
    return bad("w13 codes",
               "shape " + shape_text(codes_shape) + ", expected [experts, n, k/2] and an expert");
  }
  W4a16Plan plan;
  plan.experts = codes_shape[0];
  const std::int64_t halves = input.gating == Gating::gated ? 2 : 1;
  FEWBIT_TRY(plan.w13,
             plan_matrix(input, "w13", input.w13, plan.experts,
                         {.n = halves * input.intermediate_size, .k = input.hidden_size}));
  FEWBIT_TRY(plan.w2, plan_matrix(input, "w2", input.w2, plan.experts,
                                  {.n = input.hidden_size, .k = input.intermediate_size}));
  return plan;
}

}  // namespace fewbit
