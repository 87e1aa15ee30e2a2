// SPDX-License-Identifier: Apache-2.0
// 8-bit codes: moved, and converted from others.
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/repack_layouts.hpp"
#include "fewbit/layouts.hpp"
#include "layout/column_major.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/row_major.hpp"

namespace fewbit::bench {
namespace {

// In the memory of the result.
Fp8Target fp8_target(Buffers& buffers, Dims all, Fp8RowScale scale) {
  const std::size_t rows = scale == Fp8RowScale::none ? 0 : static_cast<std::size_t>(all.n);
  buffers.row_scales.resize(rows);
  return {.codes = buffers.out.span().first(static_cast<std::size_t>(all.n * all.k)),
          .scales = buffers.row_scales};
}

RepackCase fp8_of_nvfp4(std::string name, const SharedBuffers& buffers, Fp8RowScale scale) {
  constexpr Dims all{.n = experts * codes.n, .k = codes.k};
  return {.name = std::move(name),
          .read_bytes = all.n * (all.k / 2 + all.k / 16),
          .written_bytes = all.n * all.k,
          .run = [=](Executor& executor) -> Result<void> {
            return nvfp4_to_fp8_rows(
                {.codes = view_of(DType::u8, {all.n, all.k / 2}, buffers->source.span()),
                 .scales = view_of(DType::f8_e4m3, {all.n, all.k / 16}, buffers->scales.span()),
                 .global_scale = 0x1p-8F},
                all, scale, fp8_target(*buffers, all, scale), executor);
          }};
}

RepackCase fp8_of_bf16(const SharedBuffers& buffers) {
  constexpr Dims all{.n = experts * codes.n / 2, .k = codes.k};  // as many bytes as there are
  auto weights = std::make_shared<std::vector<std::uint16_t>>();
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < all.n * all.k; ++i) {
    state = state * 1664525U + 1013904223U;
    // 2^-7 to 2, of both signs: sizes that weights have.
    weights->push_back(static_cast<std::uint16_t>(0x3c00U | (state >> 16U & 0x83ffU)));
  }
  return {.name = "bf16 to fp8 rows",
          .read_bytes = all.n * all.k * 2,
          .written_bytes = all.n * all.k,
          .run = [=](Executor& executor) -> Result<void> {
            return bf16_to_fp8_rows(
                view_of(DType::bf16, {all.n, all.k}, std::as_bytes(std::span(*weights))), all,
                fp8_target(*buffers, all, Fp8RowScale::per_row), executor);
          }};
}

}  // namespace

void add_fp8_cases(const SharedBuffers& b, IsaLevel isa, RepackCases& cases) {
  const auto add = [&cases](RepackCase one) { cases.push_back(std::move(one)); };
  add(layouts<RowMajor<8>, Marlin8Bit>("marlin fp8", b, codes, {64, 64}, isa));
  add(layouts<RowMajor<8>, ColumnMajor<8>>("fp8 column-major", b, codes, {64, 64}, isa));
  add(fp8_of_nvfp4("nvfp4 to fp8", b, Fp8RowScale::none));
  add(fp8_of_nvfp4("nvfp4 to fp8, a scale a row", b, Fp8RowScale::per_row));
  add(fp8_of_bf16(b));
}

}  // namespace fewbit::bench
