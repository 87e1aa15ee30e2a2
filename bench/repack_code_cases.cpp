// SPDX-License-Identifier: Apache-2.0
// Codes of 2, 3 and 4 bits to tiles and blocks.
#include <memory>
#include <span>
#include <utility>

#include "bench/repack_layouts.hpp"
#include "layout/awq_words.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/cpu_lane16_pack.hpp"
#include "layout/f4_transposed.hpp"
#include "layout/gptq_words.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/pack_b12x.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/prepare_q2.hpp"
#include "layout/row_major.hpp"
#include "layout/trtllm_blocks.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit::bench {
namespace {

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

// Rows in TRT-LLM's order, as they are and in blocks of 256 columns.
RepackCase trtllm(std::string name, const SharedBuffers& buffers, IsaLevel isa, Dims block) {
  const TrtllmRows rows{.rows = codes.n, .gating = Gating::gated, .block = TrtllmBlock::rows_32};
  ElementMap map{
      .bits = 4,
      .source = [rows](std::int64_t p,
                       std::int64_t k) { return RowMajor<4>::place(codes, rows.source(p), k); },
      .out = place_of<RowMajor<4>>(codes),
      .ranges = {{.first = {}, .count = codes, .block = block}}};
  if (block.k == 256) {
    map.out = [](std::int64_t p, std::int64_t k) {
      return TrtllmBlocks<Gating::gated>::block_place(codes.n, p, k);
    };
  }
  const std::int64_t bytes = codes.n * codes.k / 2;
  return {.name = std::move(name),
          .read_bytes = experts * bytes,
          .written_bytes = experts * bytes,
          .run = [=](Executor& executor) -> Result<void> {
            move_elements(ElementMover(map, isa),
                          {.experts = experts, .source_bytes = bytes, .out_bytes = bytes},
                          buffers->source.span(), buffers->out.span(), executor);
            return {};
          }};
}

// Codes a byte each into their 3 bits.
RepackCase nf3(const SharedBuffers& buffers) {
  const std::int64_t words = Nf3Packed::bytes(codes);
  return {.name = "nf3",
          .read_bytes = experts * codes.n * codes.k,
          .written_bytes = experts * words,
          .run = [=](Executor& executor) -> Result<void> {
            const auto* in = reinterpret_cast<const std::uint8_t*>(buffers->source.data());
            const auto size = static_cast<std::size_t>(codes.n * codes.k);
            parallel_for(executor, static_cast<int>(experts), [&](int expert) {
              const auto e = static_cast<std::size_t>(expert);
              pack_nf3(codes, 128, {in + e * size, size},
                       buffers->out.span().subspan(e * static_cast<std::size_t>(words),
                                                   static_cast<std::size_t>(words)));
            });
            return {};
          }};
}

// Whole experts, codes and scales, as a model's are packed when it is opened.
RepackCase lane16(const SharedBuffers& buffers) {
  const std::int64_t scale_bytes = codes.n * codes.k / 16;
  return {.name = "cpu_f4_lane16",
          .read_bytes = experts * (code_bytes + scale_bytes),
          .written_bytes = experts * (code_bytes + scale_bytes),
          .run = [=](Executor& executor) -> Result<void> {
            const auto* in = reinterpret_cast<const std::uint8_t*>(buffers->source.data());
            auto* out = reinterpret_cast<std::uint8_t*>(buffers->out.data());
            parallel_for(executor, static_cast<int>(experts), [&](int expert) {
              const std::int64_t at = expert * (code_bytes + scale_bytes);
              pack_cpu_f4_lane16({.codes = in + at, .scales = in + at + code_bytes, .dims = codes},
                                 out + at, out + at + code_bytes);
            });
            return {};
          }};
}

// 2-bit codes and their scales of 64.
RepackCase q2(const SharedBuffers& buffers) {
  constexpr Dims all{.n = experts * codes.n, .k = codes.k};
  constexpr std::int64_t groups = all.k / 64;
  constexpr std::int64_t bytes = all.n * (all.k / 4 + 2 * groups);
  return {.name = "q2_0 blocks",
          .read_bytes = bytes,
          .written_bytes = bytes,
          .run = [=](Executor& executor) -> Result<void> {
            return pack_q2({.codes = view_of(DType::u8, {all.n, all.k / 4}, buffers->source.span()),
                            .scales = view_of(DType::f16, {all.n, groups}, buffers->source.span())},
                           all, 64, buffers->out.span().first(static_cast<std::size_t>(bytes)),
                           executor);
          }};
}

}  // namespace

void add_code_cases(const SharedBuffers& b, IsaLevel isa, RepackCases& cases) {
  const auto add = [&cases](RepackCase one) { cases.push_back(std::move(one)); };
  add(b12x(b, isa));
  add(trtllm("trtllm fp4 rows", b, isa, {16, 512}));
  add(trtllm("trtllm mxint4 blocks", b, isa, {32, 256}));
  add(layouts<GptqWords<4>, CpuInt4Blocks<128>>("cpu int4 blocks, gptq", b, codes, {64, 128}, isa));
  add(layouts<AwqWords<4>, CpuInt4Blocks<128>>("cpu int4 blocks, awq", b, codes, {256, 32}, isa));
  add(lane16(b));
  add(layouts<RowMajor<4>, F4Transposed<16>>("fp4 transposed", b, codes, {64, 128}, isa));
  add(layouts<GptqWords<4>, RowMajor<4>>("xpu int4", b, codes, {32, 256}, isa));
  add(nf3(b));
  add(q2(b));
}

}  // namespace fewbit::bench
