// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "core/checked.hpp"
#include "fewbit/layouts.hpp"
#include "layout/check_tensor.hpp"
#include "layout/scale_grid.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/w4a16_scales.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

bool has_tail(const W4a16Input& input) {
  return input.source == W4a16Source::fp4_e8m0_k32 && input.intermediate_size % 32 != 0;
}

DType scale_dtype(const W4a16Input& input) {
  return input.source == W4a16Source::fp4_e8m0_k32 ? DType::f8_e8m0 : DType::f8_e4m3;
}

Result<void> check_multiple(const std::string& where, const char* what, std::int64_t found,
                            std::int64_t multiple) {
  if (found % multiple == 0) return {};
  return bad(where, std::string(what) + " is " + std::to_string(found) +
                        ", expected a multiple of " + std::to_string(multiple));
}

// One matrix, with what the kernels ask of its sizes.
struct MatrixRule {
  std::string name;
  Dims dims;
  std::int64_t k_multiple = 16;
  bool pad_columns = false;
};

Result<W4a16NativeMatrixPlan> plan_matrix(const W4a16Input& input, const W4a16Matrix& matrix,
                                          std::int64_t experts, const MatrixRule& rule,
                                          UnevenColumns uneven) {
  const std::int64_t group = w4a16_group_size(input.source);
  const Dims dims = rule.dims;
  FEWBIT_TRY(
      check_tensor(rule.name + " codes", matrix.codes, DType::u8, {experts, dims.n, dims.k / 2}));
  FEWBIT_TRY(check_multiple(rule.name + " codes", "k", dims.k, rule.k_multiple));
  W4a16NativeMatrixPlan plan;
  plan.dims = dims;
  plan.scale_grid = {.n = dims.n, .k = ceil_div(dims.k, group)};
  plan.scale_columns = rule.pad_columns ? round_up<std::int64_t>(dims.n, 64) : dims.n;
  const Dims stored = input.block_scale_storage == BlockScaleStorage::plain
                          ? plan.scale_grid
                          : Swizzle128x4<8>::padded(plan.scale_grid);
  FEWBIT_TRY(check_scale_bytes(rule.name + " block scales", matrix.block_scales, scale_dtype(input),
                               {experts, stored.n, stored.k}));
  FEWBIT_TRY(
      check_tensor(rule.name + " global scales", matrix.global_scales, DType::f32, {experts}));
  const std::int64_t block = scale_order(dims.k, group) == ScaleOrder::grouped ? 64 : 32;
  if (uneven == UnevenColumns::refuse) {
    FEWBIT_TRY(check_multiple(rule.name + " block scales", "n", plan.scale_columns, block));
  }
  return plan;
}

struct Part {
  const W4a16Matrix& matrix;
  const W4a16NativeMatrixPlan& plan;
  std::int64_t experts;
  RowRotation rows;
};

W4a16ScaleJob make_job(const W4a16Input& input, const Part& part) {
  return {.source = input.source,
          .storage = input.block_scale_storage,
          .activation_dtype = input.activation_dtype,
          .factors = input.factors,
          .experts = part.experts,
          .k = part.plan.dims.k,
          .grid = part.plan.scale_grid,
          .rows = part.rows,
          .columns = part.plan.scale_columns};
}

std::span<float> floats(OwnedTensor& tensor) {
  return {reinterpret_cast<float*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(float)};
}

// The micro kernel drops e2m1 bits into its numbers too, and repays their bias itself.
Result<Tensor> micro_globals(const W4a16Input& input, std::span<const float> globals) {
  FEWBIT_TRY(OwnedTensor micro,
             allocate_tensor(DType::f32, {static_cast<std::int64_t>(globals.size())}));
  float factor = 1.0F;
  if (input.source != W4a16Source::fp4_e8m0_k32) {
    factor = input.activation_dtype == DType::bf16 ? 0x1p-126F : 0x1p-14F;
  }
  for (std::size_t e = 0; e < globals.size(); ++e) floats(micro)[e] = globals[e] * factor;
  return micro.tensor;
}

Result<W4a16NativeScales> prepare_part(const W4a16Input& input, const Part& part,
                                       Executor& executor, W4a16ScaleReport& report) {
  W4a16ScaleJob job = make_job(input, part);
  const Shape shape = {part.experts, job.grid.k, job.out_columns()};
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(scale_dtype(input), shape));
  FEWBIT_TRY(OwnedTensor globals, allocate_tensor(DType::f32, {part.experts}));
  const std::span<const std::byte> source = part.matrix.block_scales.bytes;
  FEWBIT_TRY(report, prepare_block_scales(job, source, scales.bytes, executor));
  prepare_global_scales(job, part.matrix.global_scales.bytes, floats(globals), report);
  W4a16NativeScales result{.scales = scales.tensor,
                           .global_scales = globals.tensor,
                           .micro_scales = scales.tensor,
                           .micro_global_scales = {}};
  if (part.plan.own_micro_scales) {
    job.rows.shift = 0;
    FEWBIT_TRY(OwnedTensor micro, allocate_tensor(scale_dtype(input), shape));
    FEWBIT_TRY(prepare_block_scales(job, source, micro.bytes, executor));
    result.micro_scales = micro.tensor;
  }
  FEWBIT_TRY(result.micro_global_scales, micro_globals(input, floats(globals)));
  return result;
}

Result<void> check_input(const W4a16Input& input) {
  if (input.source == W4a16Source::compressed_tensors) {
    return Error{ErrorCode::unsupported,
                 "source format 'compressed_tensors' has no native form, expected "
                 "'modelopt_nvfp4' or 'fp4_e8m0_k32'",
                 ""};
  }
  if (input.activation_dtype != DType::bf16 && input.activation_dtype != DType::f16) {
    return bad("activation dtype",
               std::string(dtype_name(input.activation_dtype)) + ", expected bf16 or f16");
  }
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  const Shape& codes_shape = input.w13.codes.shape;
  if (codes_shape.size() == 3 && codes_shape[0] > 0) return {};
  return bad("w13 codes",
             "shape " + shape_text(codes_shape) + ", expected [experts, n, k/2] and an expert");
}

}  // namespace

Result<W4a16NativePlan> plan_w4a16_native(const W4a16Input& input, UnevenColumns uneven) {
  FEWBIT_TRY(check_input(input));
  const bool e8m0 = input.source == W4a16Source::fp4_e8m0_k32;
  const std::int64_t halves = input.gating == Gating::gated ? 2 : 1;
  W4a16NativePlan plan;
  plan.experts = input.w13.codes.shape[0];
  const MatrixRule w13{.name = "w13",
                       .dims = {.n = halves * input.intermediate_size, .k = input.hidden_size},
                       .k_multiple = e8m0 ? 32 : 16,
                       .pad_columns = has_tail(input)};
  const MatrixRule w2{.name = "w2",
                      .dims = {.n = input.hidden_size, .k = input.intermediate_size},
                      .k_multiple = e8m0 ? 8 : 16,
                      .pad_columns = false};
  FEWBIT_TRY(plan.w13, plan_matrix(input, input.w13, plan.experts, w13, uneven));
  FEWBIT_TRY(plan.w2, plan_matrix(input, input.w2, plan.experts, w2, uneven));
  plan.w13.own_micro_scales =
      e8m0 && to_gate_up(w13.dims.n, input.gating, input.w13_order).shift != 0;
  return plan;
}

Result<W4a16NativeResult> prepare_w4a16_native(const W4a16Input& input, UnevenColumns uneven,
                                               Executor& executor) {
  FEWBIT_TRY(const W4a16NativePlan plan, plan_w4a16_native(input, uneven));
  W4a16NativeResult result;
  const Part w13{.matrix = input.w13,
                 .plan = plan.w13,
                 .experts = plan.experts,
                 .rows = to_gate_up(plan.w13.dims.n, input.gating, input.w13_order)};
  const Part w2{.matrix = input.w2,
                .plan = plan.w2,
                .experts = plan.experts,
                .rows = {.rows = plan.w2.dims.n, .shift = 0}};
  FEWBIT_TRY(result.w13, prepare_part(input, w13, executor, result.report.w13));
  FEWBIT_TRY(result.w2, prepare_part(input, w2, executor, result.report.w2));
  return result;
}

}  // namespace fewbit
