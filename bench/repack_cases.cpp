// SPDX-License-Identifier: Apache-2.0
#include "bench/repack_cases.hpp"

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "fewbit/layouts.hpp"
#include "layout/awq_words.hpp"
#include "layout/column_major.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/cpu_lane16_pack.hpp"
#include "layout/element_mover.hpp"
#include "layout/f4_transposed.hpp"
#include "layout/gptq_words.hpp"
#include "layout/map_layouts.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/pack_b12x.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/prepare_q2.hpp"
#include "layout/row_major.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/trtllm_blocks.hpp"
#include "layout/trtllm_rows.hpp"
#include "layout/w4a16_scales.hpp"

namespace fewbit::bench {
namespace {

constexpr std::int64_t experts = 8;
constexpr Dims codes{.n = 3072, .k = 4096};

// Source and result of all cases: as large as the largest, 8 bits an element.
struct Buffers {
  AlignedBuffer source;
  AlignedBuffer out;
  AlignedBuffer scales;  // e4m3, as checkpoints have them: 1/64 to 448
  std::vector<float> row_scales;
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
  FEWBIT_TRY(buffers->scales, AlignedBuffer::allocate(experts * codes.n * codes.k / 16));
  for (std::byte& byte : buffers->scales.span()) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(8 + (state >> 24U) % 119);
  }
  std::memset(buffers->out.data(), 0, bytes);
  return buffers;
}

template <Layout FromLayout, Layout ToLayout>
struct Pair {
  using From = FromLayout;
  using To = ToLayout;
};

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

// As many bytes read as written: pack(from, to) of each expert, a task each.
template <class Pack>
RepackCase each_expert(std::string name, const SharedBuffers& buffers, std::int64_t bytes,
                       Pack pack) {
  return {.name = std::move(name),
          .read_bytes = experts * bytes,
          .written_bytes = experts * bytes,
          .run = [=](Executor& executor) -> Result<void> {
            parallel_for(executor, static_cast<int>(experts), [&](int expert) {
              const std::size_t size = static_cast<std::size_t>(bytes);
              const std::size_t at = static_cast<std::size_t>(expert) * size;
              pack(buffers->source.span().subspan(at, size), buffers->out.span().subspan(at, size));
            });
            return {};
          }};
}

// words of the codes -> Marlin tiles by marlin_repack, an expert a task.
RepackCase marlin(std::string name, const SharedBuffers& buffers, MarlinCodes kind,
                  bool act_order) {
  const std::int64_t bytes = marlin_tile_bytes(codes, kind.bits);
  auto order = std::make_shared<std::vector<std::int32_t>>();
  if (act_order) {
    for (std::int64_t k = 0; k < codes.k; ++k) {
      order->push_back(static_cast<std::int32_t>(k * 1001 % codes.k));  // odd: a permutation
    }
  }
  return each_expert(std::move(name), buffers, bytes, [=](auto from, auto to) {
    marlin_repack(kind, {.from = codes, .to = codes, .parts_n = 1, .order = *order}, from, to);
  });
}

// 4-bit words and a zero point a group of 128 -> tiles for FP8 activations.
RepackCase marlin_signed(std::string name, const SharedBuffers& buffers, WordSource source) {
  const std::int64_t bytes = marlin_tile_bytes(codes, 4);
  const std::int64_t groups = codes.k / 128;
  return {.name = std::move(name),
          .read_bytes = experts * bytes,
          .written_bytes = experts * bytes,
          .run = [=](Executor& executor) -> Result<void> {
            const auto zeros =
                buffers->scales.span().first(static_cast<std::size_t>(groups * codes.n / 2));
            parallel_for(executor, static_cast<int>(experts), [&](int expert) {
              const std::size_t size = static_cast<std::size_t>(bytes);
              const std::size_t at = static_cast<std::size_t>(expert) * size;
              marlin_repack_fp8({.source = source,
                                 .rules = MarlinRules::as_vllm,
                                 .zeros = {.words = zeros, .groups = groups}},
                                {.from = codes, .to = codes, .parts_n = 1, .order = {}},
                                buffers->source.span().subspan(at, size),
                                buffers->out.span().subspan(at, size));
            });
            return {};
          }};
}

// Rows of 3056 columns, which fill no whole block of 64; as many bytes as the grids below.
RepackCase uneven_grid(std::string name, const SharedBuffers& buffers) {
  constexpr std::int64_t all_experts = 2 * experts;
  const W4a16ScaleJob job{.source = W4a16Source::fp4_e8m0_k32,
                          .storage = BlockScaleStorage::plain,
                          .experts = all_experts,
                          .k = codes.k,
                          .grid = {.n = codes.n - 16, .k = codes.k / 32},
                          .rows = {.rows = codes.n - 16, .shift = codes.n / 2 - 8},
                          .columns = codes.n};
  const std::int64_t read = all_experts * job.grid.n * job.grid.k;
  const std::int64_t written = all_experts * codes.n * job.grid.k;
  return {.name = std::move(name),
          .read_bytes = read,
          .written_bytes = written,
          .run = [=](Executor& executor) -> Result<void> {
            FEWBIT_TRY(prepare_block_scales(
                job, buffers->scales.span().first(static_cast<std::size_t>(read)),
                buffers->out.span().first(static_cast<std::size_t>(written)), executor));
            return {};
          }};
}

// As the engines' grids are made: the largest scale is found, then all are encoded and permuted.
RepackCase scale_grid(std::string name, const SharedBuffers& buffers, BlockScaleStorage storage) {
  const W4a16ScaleJob job{.source = W4a16Source::modelopt_nvfp4,
                          .storage = storage,
                          .activation_dtype = DType::bf16,
                          .experts = experts,
                          .k = codes.k,
                          .grid = {.n = codes.n, .k = codes.k / 16},
                          .rows = {.rows = codes.n, .shift = codes.n / 2},
                          .columns = 0};
  const std::int64_t bytes = experts * job.grid.n * job.grid.k;
  return {.name = std::move(name),
          .read_bytes = bytes,
          .written_bytes = bytes,
          .run = [=](Executor& executor) -> Result<void> {
            const auto size = static_cast<std::size_t>(bytes);
            FEWBIT_TRY(prepare_block_scales(job, buffers->scales.span().first(size),
                                            buffers->out.span().first(size), executor));
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
  const std::int64_t code_bytes = codes.n * codes.k / 2;
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

TensorView view_of(DType dtype, Shape shape, std::span<const std::byte> memory) {
  std::size_t bytes = static_cast<std::size_t>(dtype_bits(dtype));
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return {
      .dtype = dtype, .shape = std::move(shape), .bytes = memory.first(bytes / 8), .device = {}};
}

// 2-bit codes and their scales of 64; with the memory of the result.
RepackCase q2(const SharedBuffers& buffers) {
  constexpr Dims all{.n = experts * codes.n, .k = codes.k};
  constexpr std::int64_t groups = all.k / 64;
  constexpr std::int64_t bytes = all.n * (all.k / 4 + 2 * groups);
  return {.name = "q2_0 blocks",
          .read_bytes = bytes,
          .written_bytes = bytes,
          .run = [=](Executor& executor) -> Result<void> {
            const auto result =
                pack_q2({.codes = view_of(DType::u8, {all.n, all.k / 4}, buffers->source.span()),
                         .scales = view_of(DType::f16, {all.n, groups}, buffers->source.span())},
                        all, 64, executor);
            return result ? Result<void>() : result.error();
          }};
}

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

// One part of what Marlin reads beside codes, of groups of 32: `bits` each, an expert a task.
template <class Fn>
RepackCase marlin_grid(std::string name, const SharedBuffers& buffers, std::int64_t bits,
                       const Fn& move) {
  constexpr Dims grid{.n = codes.n, .k = codes.k / 32};
  const std::int64_t bytes = grid.n * grid.k * bits / 8;
  return each_expert(std::move(name), buffers, bytes, [=](auto from, auto to) {
    move(PaddedMatrix{.from = grid, .to = grid, .parts_n = 1, .order = {}}, from, to);
  });
}

RepackCase marlin_scale_rows(const SharedBuffers& buffers) {
  return marlin_grid("marlin scales", buffers, 16,
                     [](const PaddedMatrix& grid, auto from, auto to) {
                       marlin_scales(ScaleOrder::grouped, grid, from, to);
                     });
}

RepackCase marlin_zero_rows(std::string name, const SharedBuffers& buffers, WordSource source) {
  return marlin_grid(std::move(name), buffers, 4,
                     [source](const PaddedMatrix& grid, auto from, auto to) {
                       marlin_zero_points({.source = source}, grid, from, to);
                     });
}

// Rows of codes, as canonical weights have them.
RepackCase marlin_rows(std::string name, const SharedBuffers& buffers, int bits) {
  const std::int64_t bytes = marlin_tile_bytes(codes, bits);
  return {
      .name = std::move(name),
      .read_bytes = experts * bytes,
      .written_bytes = experts * bytes,
      .run = [=](Executor& executor) -> Result<void> {
        parallel_for(executor, static_cast<int>(experts), [&](int expert) {
          const std::size_t size = static_cast<std::size_t>(bytes);
          const std::size_t at = static_cast<std::size_t>(expert) * size;
          const CodeRows rows{.codes = buffers->source.span().subspan(at, size), .dims = codes};
          marlin_repack_rows(bits, true, {&rows, 1}, codes, buffers->out.span().subspan(at, size));
        });
        return {};
      }};
}

}  // namespace

Result<std::vector<RepackCase>> repack_cases(IsaLevel isa) {
  FEWBIT_TRY(const SharedBuffers b, make_buffers());
  constexpr Dims grid16{.n = codes.n, .k = codes.k / 16};
  constexpr MarlinActivation bits16 = MarlinActivation::bits16;
  constexpr MarlinActivation int8 = MarlinActivation::int8;
  constexpr WordSource gptq = WordSource::gptq;
  constexpr WordSource awq = WordSource::awq;
  const auto add = [&](auto layout_pair, const char* name, Dims dims, Dims block) {
    using Pair = decltype(layout_pair);
    return layouts<typename Pair::From, typename Pair::To>(name, b, dims, block, isa);
  };
  return std::vector<RepackCase>{
      b12x(b, isa),
      marlin("marlin 4-bit, gptq", b, {gptq, 4, bits16}, false),
      marlin("marlin 4-bit, gptq, act-order", b, {gptq, 4, bits16}, true),
      marlin("marlin 4-bit, awq", b, {awq, 4, bits16}, false),
      marlin("marlin 4-bit, awq, in an order", b, {awq, 4, bits16}, true),
      marlin("marlin 4-bit act8, gptq", b, {gptq, 4, int8}, false),
      marlin("marlin 4-bit act8, awq", b, {awq, 4, int8}, false),
      marlin_signed("marlin 4-bit fp8, gptq, zeros", b, gptq),
      marlin_signed("marlin 4-bit fp8, awq, zeros", b, awq),
      scale_grid("nvfp4 scale grid, plain", b, BlockScaleStorage::plain),
      scale_grid("nvfp4 scale grid, swizzled", b, BlockScaleStorage::swizzled_128x4),
      uneven_grid("e8m0 scale grid, uneven", b),
      add(Pair<RowMajor<8>, Swizzle128x4<8>>{}, "swizzle 128x4", grid16, {128, 32}),
      trtllm("trtllm fp4 rows", b, isa, {16, 512}),
      trtllm("trtllm mxint4 blocks", b, isa, {32, 256}),
      add(Pair<GptqWords<4>, CpuInt4Blocks<128>>{}, "cpu int4 blocks, gptq", codes, {64, 128}),
      add(Pair<AwqWords<4>, CpuInt4Blocks<128>>{}, "cpu int4 blocks, awq", codes, {256, 32}),
      lane16(b),
      add(Pair<RowMajor<4>, F4Transposed<16>>{}, "fp4 transposed", codes, {64, 128}),
      add(Pair<GptqWords<4>, RowMajor<4>>{}, "xpu int4", codes, {64, 128}),
      add(Pair<RowMajor<8>, Marlin8Bit>{}, "marlin fp8", codes, {64, 64}),
      add(Pair<RowMajor<8>, ColumnMajor<8>>{}, "fp8 column-major", codes, {64, 64}),
      nf3(b),
      q2(b),
      fp8_of_nvfp4("nvfp4 to fp8", b, Fp8RowScale::none),
      fp8_of_nvfp4("nvfp4 to fp8, a scale a row", b, Fp8RowScale::per_row),
      fp8_of_bf16(b),
      marlin_rows("marlin 4-bit, rows", b, 4),
      marlin_rows("marlin 8-bit, rows", b, 8),
      marlin_scale_rows(b),
      marlin_zero_rows("marlin zeros, gptq", b, gptq),
      marlin_zero_rows("marlin zeros, awq", b, awq),
      marlin("marlin 8-bit, gptq", b, {gptq, 8, bits16}, false),
      marlin("marlin 8-bit, awq", b, {awq, 8, bits16}, false),
      marlin("marlin 8-bit act8, gptq", b, {gptq, 8, int8}, false),
      marlin("marlin 8-bit act8, awq", b, {awq, 8, int8}, false),
  };
}

}  // namespace fewbit::bench
