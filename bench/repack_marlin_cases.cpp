// SPDX-License-Identifier: Apache-2.0
// What Marlin reads: tiles of codes, and scales and zero points beside them.
#include <memory>
#include <utility>
#include <vector>

#include "bench/repack_layouts.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/row_major.hpp"

namespace fewbit::bench {
namespace {

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
  return each_expert(std::move(name), buffers, marlin_tile_bytes(codes, bits),
                     [bits](auto from, auto to) {
                       const CodeRows rows{.codes = from, .dims = codes};
                       marlin_repack_rows(bits, true, {&rows, 1}, codes, to);
                     });
}

}  // namespace

void add_marlin_cases(const SharedBuffers& b, RepackCases& cases) {
  constexpr MarlinActivation bits16 = MarlinActivation::bits16;
  constexpr MarlinActivation int8 = MarlinActivation::int8;
  constexpr WordSource gptq = WordSource::gptq;
  constexpr WordSource awq = WordSource::awq;
  const auto add = [&cases](RepackCase one) { cases.push_back(std::move(one)); };
  add(marlin("marlin 4-bit, gptq", b, {gptq, 4, bits16}, false));
  add(marlin("marlin 4-bit, gptq, act-order", b, {gptq, 4, bits16}, true));
  add(marlin("marlin 4-bit, awq", b, {awq, 4, bits16}, false));
  add(marlin("marlin 4-bit, awq, in an order", b, {awq, 4, bits16}, true));
  add(marlin("marlin 4-bit act8, gptq", b, {gptq, 4, int8}, false));
  add(marlin("marlin 4-bit act8, awq", b, {awq, 4, int8}, false));
  add(marlin_signed("marlin 4-bit fp8, gptq, zeros", b, gptq));
  add(marlin_signed("marlin 4-bit fp8, awq, zeros", b, awq));
  add(marlin_rows("marlin 4-bit, rows", b, 4));
  add(marlin_scale_rows(b));
  add(marlin_zero_rows("marlin zeros, gptq", b, gptq));
  add(marlin_zero_rows("marlin zeros, awq", b, awq));
  add(marlin("marlin 8-bit, gptq", b, {gptq, 8, bits16}, false));
  add(marlin("marlin 8-bit, awq", b, {awq, 8, bits16}, false));
  add(marlin("marlin 8-bit act8, gptq", b, {gptq, 8, int8}, false));
  add(marlin("marlin 8-bit act8, awq", b, {awq, 8, int8}, false));
  add(marlin_rows("marlin 8-bit, rows", b, 8));
}

}  // namespace fewbit::bench
