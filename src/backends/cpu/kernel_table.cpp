// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernel_table.hpp"

#include "core/cpu_features.hpp"

namespace fewbit::cpu {
namespace {

constexpr Kernels generic_kernels = {
    .level = IsaLevel::generic,
    .backend = "cpu_generic",
    .lane16 = lane16_generic,
    .lane16_tokens = max_decoded_tokens,
    .bf16_rows = bf16_rows_generic,
    .f16_rows = f16_rows_generic,
    .f32_rows = f32_rows_generic,
};
#if defined(__aarch64__)
constexpr Kernels neon_kernels = {
    .level = IsaLevel::neon,
    .backend = "cpu_neon",
    .lane16 = lane16_neon,
    .lane16_tokens = max_decoded_tokens,
    .bf16_rows = bf16_rows_neon,
    .f16_rows = f16_rows_neon,
    .f32_rows = f32_rows_neon,
};
#endif
#if defined(__x86_64__)
constexpr Kernels avx2_kernels = {
    .level = IsaLevel::avx2,
    .backend = "cpu_avx2",
    .lane16 = lane16_avx2,
    .lane16_tokens = max_decoded_tokens,
    .bf16_rows = bf16_rows_avx2,
    .f16_rows = f16_rows_avx2,
    .f32_rows = f32_rows_avx2,
};
constexpr Kernels avx512_kernels = {
    .level = IsaLevel::avx512,
    .backend = "cpu_avx512",
    .lane16 = lane16_avx512,
    .lane16_tokens = max_panel_tokens,
    .bf16_rows = bf16_rows_avx512,
    .f16_rows = f16_rows_avx512,
    .f32_rows = f32_rows_avx512,
};
// Reading a block takes as long as the products of five tokens (an EPYC of 2024, nvfp4).
constexpr Kernels avx512_dot_kernels = [] {
  Kernels kernels = avx512_kernels;
  kernels.tiles = lane16_dots_avx512;
  kernels.tile_products = "dot products of bf16 pairs";
  kernels.tile_cost = {.least = 5, .more = 0};
  kernels.least_tile_tokens = 1;
  return kernels;
}();
constexpr Kernels amx_kernels = [] {
  Kernels kernels = avx512_kernels;
  kernels.level = IsaLevel::amx;
  kernels.backend = "cpu_amx";
  kernels.tiles = lane16_amx;
  return kernels;
}();
#endif

constexpr PanelConversions bf16_conversions = {panel_load_bf16, panel_load_ordered_bf16,
                                               panel_store_bf16, round_bf16, 2};
constexpr PanelConversions f16_conversions = {panel_load_f16, panel_load_ordered_f16,
                                              panel_store_f16, round_f16, 2};
constexpr PanelConversions f32_conversions = {panel_load_f32, panel_load_ordered_f32,
                                              panel_store_f32, round_f32, 4};

}  // namespace

const Kernels& kernels_of(IsaLevel level) {
#if defined(__x86_64__)
  if (level == IsaLevel::amx) return amx_kernels;
  if (level == IsaLevel::avx512) return avx512_kernels;
  if (level == IsaLevel::avx2) return avx2_kernels;
#elif defined(__aarch64__)
  if (level == IsaLevel::neon) return neon_kernels;
#endif
  static_cast<void>(level);
  return generic_kernels;
}

const Kernels& kernels_of(IsaLevel level, const CpuFeatures& features) {
#if defined(__x86_64__)
  if (level == IsaLevel::avx512 && features.avx512_fast_bf16) return avx512_dot_kernels;
#endif
  static_cast<void>(features);
  return kernels_of(level);
}

const Kernels& kernels_here(IsaLevel level) {
  static const CpuFeatures features = detect_cpu_features();
  return kernels_of(level, features);
}

PlainRowsFn* plain_rows(const Kernels& kernels, DType dtype) {
  if (dtype == DType::bf16) return kernels.bf16_rows;
  return dtype == DType::f16 ? kernels.f16_rows : kernels.f32_rows;
}

const PanelConversions& conversions_of(DType dtype) {
  if (dtype == DType::bf16) return bf16_conversions;
  return dtype == DType::f16 ? f16_conversions : f32_conversions;
}

}  // namespace fewbit::cpu
