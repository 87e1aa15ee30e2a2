// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <string>

#include "core/float_convert.hpp"
#include "fewbit/layouts.hpp"
#include "layout/check_tensor.hpp"
#include "layout/element_mover.hpp"
#include "layout/pack_fast_fp8.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

constexpr float largest_fp8 = 448.0F;
constexpr std::int64_t group = 16;  // columns a scale of NVFP4

float scale_of(float largest) { return largest > 0.0F ? largest / largest_fp8 : 1.0F; }

Result<void> check_dims(Dims dims) {
  FEWBIT_TRY(check_extent("n", dims.n));
  return check_extent("k", dims.k);
}

Result<void> check_target(const Fp8Target& to, Dims dims, Fp8RowScale kind) {
  const auto rows = static_cast<std::size_t>(dims.n);
  const std::size_t scales = kind == Fp8RowScale::none ? 0 : rows;
  if (to.codes.size() == rows * static_cast<std::size_t>(dims.k) && to.scales.size() == scales) {
    return {};
  }
  return Error{ErrorCode::invalid_argument,
               std::to_string(to.codes.size()) + " codes and " + std::to_string(to.scales.size()) +
                   " scales, expected " + std::to_string(dims.n * dims.k) + " and " +
                   std::to_string(scales),
               "result"};
}

// convert(to): fills new memory.
template <class Fn>
Result<Fp8Rows> in_new_memory(Dims dims, Fp8RowScale kind, const Fn& convert) {
  FEWBIT_TRY(const OwnedTensor codes, allocate_tensor(DType::f8_e4m3, {dims.n, dims.k}));
  FEWBIT_TRY(const OwnedTensor scales, allocate_tensor(DType::f32, {dims.n}));
  const bool scaled = kind != Fp8RowScale::none;
  auto* const values = reinterpret_cast<float*>(scales.bytes.data());
  const auto rows = static_cast<std::size_t>(dims.n);
  FEWBIT_TRY(convert({.codes = codes.bytes, .scales = {values, scaled ? rows : 0}}));
  return Fp8Rows{.codes = codes.tensor, .scales = scaled ? scales.tensor : Tensor{}};
}

Result<void> check_bf16(const TensorView& weights, Dims dims) {
  FEWBIT_TRY(check_dims(dims));
  return check_tensor("weights", weights, DType::bf16, {dims.n, dims.k});
}

Result<void> check_nvfp4(const Nvfp4Rows& rows, Dims dims) {
  FEWBIT_TRY(check_dims(dims));
  if (dims.k % group != 0) {
    return Error{
        ErrorCode::invalid_argument,
        std::to_string(dims.k) + ", expected a multiple of the group, " + std::to_string(group),
        "k"};
  }
  FEWBIT_TRY(check_tensor("codes", rows.codes, DType::u8, {dims.n, dims.k / 2}));
  return check_tensor("scales", rows.scales, DType::f8_e4m3, {dims.n, dims.k / group});
}

std::array<float, 256> steps_of(float global_scale) {
  std::array<float, 256> steps{};
  for (std::size_t scale = 0; scale < steps.size(); ++scale) {
    steps[scale] = f8_e4m3_to_f32(static_cast<std::uint8_t>(scale)) * global_scale;
  }
  return steps;
}

Fp8Tables tables_of(const std::array<float, 256>& steps) {
  Fp8Tables tables{};
  for (std::size_t scale = 0; scale < tables.size(); ++scale) {
    for (std::uint8_t code = 0; code < 16; ++code) {
      tables[scale][code] = fp8_of_e2m1(code, steps[scale], 1.0F);
    }
  }
  return tables;
}

}  // namespace

Result<void> bf16_to_fp8_rows(const TensorView& weights, Dims dims, const Fp8Target& to,
                              Executor& executor) {
  FEWBIT_TRY(check_bf16(weights, dims));
  FEWBIT_TRY(check_target(to, dims, Fp8RowScale::per_row));
  const Fp8Kernels& kernels = fp8_kernels(packing_isa());
  FenceBlocksFn* const fence = block_mover(packing_isa()).fence;
  parallel_ranges(executor, dims.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const std::byte* const row = weights.bytes.data() + n * dims.k * 2;
      const float scale = scale_of(bf16_to_f32(kernels.largest_bf16(row, dims.k)));
      kernels.from_bf16(row, dims.k, 1.0F / scale, to.codes.data() + n * dims.k);
      to.scales[static_cast<std::size_t>(n)] = scale;
    }
    fence();
  });
  return {};
}

Result<void> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale kind,
                               const Fp8Target& to, Executor& executor) {
  FEWBIT_TRY(check_nvfp4(rows, dims));
  FEWBIT_TRY(check_target(to, dims, kind));
  const Fp8Kernels& kernels = fp8_kernels(packing_isa());
  FenceBlocksFn* const fence = block_mover(packing_isa()).fence;
  const std::array<float, 256> steps = steps_of(rows.global_scale);
  const bool scaled = kind == Fp8RowScale::per_row;
  const Fp8Tables tables = scaled ? Fp8Tables{} : tables_of(steps);
  const std::int64_t groups = dims.k / group;
  parallel_ranges(executor, dims.n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n) {
      const Nvfp4Groups row{.codes = rows.codes.bytes.data() + n * dims.k / 2,
                            .scales = rows.scales.bytes.data() + n * groups,
                            .steps = steps.data(),
                            .count = groups};
      std::byte* const out = to.codes.data() + n * dims.k;
      if (!scaled) {
        kernels.look_up(row, tables, out);
        continue;
      }
      const float scale = scale_of(kernels.largest_nvfp4(row));
      kernels.from_nvfp4(row, 1.0F / scale, out);
      to.scales[static_cast<std::size_t>(n)] = scale;
    }
    fence();
  });
  return {};
}

Result<Fp8Rows> bf16_to_fp8_rows(const TensorView& weights, Dims dims, Executor& executor) {
  FEWBIT_TRY(check_bf16(weights, dims));
  return in_new_memory(dims, Fp8RowScale::per_row, [&](const Fp8Target& to) {
    return bf16_to_fp8_rows(weights, dims, to, executor);
  });
}

Result<Fp8Rows> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale scale,
                                  Executor& executor) {
  FEWBIT_TRY(check_nvfp4(rows, dims));
  return in_new_memory(dims, scale, [&](const Fp8Target& to) {
    return nvfp4_to_fp8_rows(rows, dims, scale, to, executor);
  });
}

}  // namespace fewbit
