// SPDX-License-Identifier: Apache-2.0
#include "bench/repack_cases.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "layout/awq_words.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/column_major.hpp"
#include "layout/cpu_f4_lane16.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/element_mover.hpp"
#include "layout/f4_transposed.hpp"
#include "layout/gptq_words.hpp"
#include "layout/map_layouts.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_act8_8bit.hpp"
#include "layout/pack_b12x.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit::bench {
namespace {

constexpr std::int64_t experts = 8;
constexpr Dims codes{.n = 3072, .k = 4096};

// Source and result of all cases: as large as the largest, 8 bits an element.
struct Buffers {
  AlignedBuffer source;
  AlignedBuffer out;
};
using SharedBuffers = std::shared_ptr<Buffers>;

Result<SharedBuffers> make_buffers() {
  constexpr std::uint64_t bytes = experts * codes.n * codes.k + (std::uint64_t{1} << 20);
  auto buffers = std::make_shared<Buffers>();
  FEWBIT_TRY(buffers->source, AlignedBuffer::allocate(bytes));
  FEWBIT_TRY(buffers->out, AlignedBuffer::allocate(bytes));
  std::uint32_t state = 1;
  for (std::byte& byte : buffers->source.span()) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24U);
  }
  std::memset(buffers->out.data(), 0, bytes);
  return buffers;
}

template <Layout From, Layout To>
RepackCase layouts(std::string name, const SharedBuffers& buffers, Dims dims, Dims block,
                   IsaLevel isa) {
  const ExpertBytes share{
      .experts = experts, .source_bytes = From::bytes(dims), .out_bytes = To::bytes(dims)};
  return {.name = std::move(name),
          .read_bytes = experts * share.source_bytes,
          .written_bytes = experts * (share.out_bytes - To::spare_bits(dims) / 8),
          .run = [=](Executor& executor) -> Result<void> {
            const ElementMover mover(map_layouts<From, To>(dims, block), isa);
            move_elements(mover, share, buffers->source.span(), buffers->out.span(), executor);
            return {};
          }};
}

RepackCase b12x(const SharedBuffers& buffers, IsaLevel isa) {
  const B12xPackJob job{.experts = experts,
                        .dims = codes,
                        .rows = {.rows = codes.n, .shift = codes.n / 2},
                        .isa = isa};
  const std::int64_t bytes = experts * job.expert_bytes();
  return {.name = "b12x_packed (pack_b12x)",
          .read_bytes = bytes,
          .written_bytes = bytes,
          .run = [=](Executor& executor) -> Result<void> {
            const auto size = static_cast<std::size_t>(bytes);
            pack_b12x(job, buffers->source.span().first(size), buffers->out.span().first(size),
                      executor);
            return {};
          }};
}

}  // namespace

Result<std::vector<RepackCase>> repack_cases(IsaLevel isa) {
  FEWBIT_TRY(const SharedBuffers b, make_buffers());
  constexpr Dims grid16{.n = codes.n, .k = codes.k / 16};
  std::vector<RepackCase> cases;
  cases.push_back(b12x(b, isa));
  cases.push_back(layouts<RowMajor<4>, B12xPacked>("b12x_packed", b, codes, {64, 128}, isa));
  cases.push_back(
      layouts<GptqWords<4>, B12xPacked>("marlin 4-bit, gptq", b, codes, {64, 128}, isa));
  cases.push_back(layouts<AwqWords<4>, B12xPacked>("marlin 4-bit, awq", b, codes, {128, 64}, isa));
  cases.push_back(
      layouts<GptqWords<4>, MarlinAct8Of4Bit>("marlin 4-bit act8, gptq", b, codes, {64, 128}, isa));
  cases.push_back(
      layouts<AwqWords<4>, MarlinAct8Of4Bit>("marlin 4-bit act8, awq", b, codes, {128, 64}, isa));
  cases.push_back(layouts<RowMajor<8>, GroupedByteScales>("scale grid, plain source", b, grid16,
                                                          {64, 64}, isa));
  cases.push_back(layouts<Swizzle128x4<8>, GroupedByteScales>("scale grid, swizzled source", b,
                                                              grid16, {128, 32}, isa));
  cases.push_back(
      layouts<RowMajor<8>, Swizzle128x4<8>>("swizzle 128x4", b, grid16, {128, 32}, isa));
  cases.push_back(
      layouts<GptqWords<4>, CpuInt4Blocks<128>>("cpu int4 blocks, gptq", b, codes, {64, 128}, isa));
  cases.push_back(
      layouts<AwqWords<4>, CpuInt4Blocks<128>>("cpu int4 blocks, awq", b, codes, {128, 64}, isa));
  cases.push_back(layouts<RowMajor<4>, CpuF4Lane16>("cpu_f4_lane16", b, codes, {16, 512}, isa));
  cases.push_back(
      layouts<RowMajor<8>, CpuF4Lane16Scales>("cpu_f4_lane16 scales", b, grid16, {16, 256}, isa));
  cases.push_back(
      layouts<RowMajor<4>, F4Transposed<16>>("fp4 transposed", b, codes, {64, 128}, isa));
  cases.push_back(layouts<GptqWords<4>, RowMajor<4>>("xpu int4", b, codes, {64, 128}, isa));
  cases.push_back(
      layouts<RowMajor<8>, ColumnMajor<8>>("fp8 column-major", b, codes, {64, 64}, isa));
  cases.push_back(layouts<GptqWords<8>, Marlin8Bit>("marlin 8-bit, gptq", b, codes, {64, 64}, isa));
  cases.push_back(layouts<AwqWords<8>, Marlin8Bit>("marlin 8-bit, awq", b, codes, {64, 64}, isa));
  cases.push_back(
      layouts<GptqWords<8>, MarlinAct8Of8Bit>("marlin 8-bit act8, gptq", b, codes, {64, 64}, isa));
  return cases;
}

}  // namespace fewbit::bench
