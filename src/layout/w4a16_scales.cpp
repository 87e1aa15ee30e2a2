// SPDX-License-Identifier: Apache-2.0
#include "layout/w4a16_scales.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"
#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/parallel_ranges.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/w4a16_encoding.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit {
namespace {

// At most 64 columns of one expert, which both orders keep within themselves.
template <ScaleOrder order>
void permute_block(const W4a16ScaleJob& job, std::int64_t block, const ByteTable& table,
                   const std::byte* scales, std::byte* out) {
  constexpr std::int64_t columns = 64;
  constexpr std::int64_t padding = -1;
  const std::int64_t first = block * columns;
  const auto count = static_cast<std::size_t>(std::min(columns, job.out_columns() - first));
  std::array<std::int64_t, columns> rows{};
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t n = ByteScaleGrid<order>::source(first + static_cast<std::int64_t>(i));
    rows[i] = n < job.grid.n ? source_place(job, job.rows.source(n), 0) : padding;
  }
  for (std::int64_t group = 0; group < job.grid.k; ++group) {
    const std::int64_t step = source_place(job, 0, group);
    std::byte* const line = out + group * job.out_columns() + first;
    for (std::size_t i = 0; i < count; ++i) {
      line[i] = rows[i] == padding ? std::byte{0}
                                   : table[std::to_integer<std::size_t>(scales[rows[i] + step])];
    }
  }
}

ScaleOrder order_of(const W4a16ScaleJob& job) {
  return scale_order(job.k, w4a16_group_size(job.source));
}

constexpr std::int64_t block_columns = 64;

// Of blocks that are all there, in the source and in the result. The rotation may cut one of them.
std::int64_t whole_columns(const W4a16ScaleJob& job) {
  return std::min(job.out_columns(), job.grid.n) / block_columns * block_columns;
}

// The blocks that are not whole, or cut.
std::vector<std::int64_t> odd_blocks(const W4a16ScaleJob& job) {
  std::vector<std::int64_t> blocks;
  const std::int64_t cut = job.grid.n - job.rows.shift;
  const std::int64_t whole = whole_columns(job);
  if (cut % block_columns != 0 && cut < whole) blocks.push_back(cut / block_columns);
  for (std::int64_t n = whole; n < job.out_columns(); n += block_columns) {
    blocks.push_back(n / block_columns);
  }
  return blocks;
}

// Of all blocks but the odd ones.
template <Layout From, ScaleOrder order>
ElementMap map_grid(const W4a16ScaleJob& job, Dims block) {
  using Grid = ByteScaleGrid<order>;
  ElementMap map = map_rotated<From, Grid>(job.rows, job.grid, block);
  map.out = place_of<Grid>({.n = job.out_columns(), .k = job.grid.k});
  for (ElementRange& range : map.ranges) {
    const std::int64_t end = std::min(range.first.n + range.count.n, whole_columns(job));
    range.first.n = round_up(range.first.n, block_columns);
    range.count.n = end / block_columns * block_columns - range.first.n;
  }
  return map;
}

ElementMap map_scales(const W4a16ScaleJob& job) {
  const bool grouped = order_of(job) == ScaleOrder::grouped;
  if (job.storage == BlockScaleStorage::plain) {
    constexpr Dims block{.n = 64, .k = 64};
    return grouped ? map_grid<RowMajor<8>, ScaleOrder::grouped>(job, block)
                   : map_grid<RowMajor<8>, ScaleOrder::single>(job, block);
  }
  // Rotated rows stay together within their tiles as far as this power of two divides the shifts.
  const std::int64_t shifts = job.rows.shift | job.grid.n | 128;
  const Dims block{.n = shifts & -shifts, .k = 32};
  return grouped ? map_grid<Swizzle128x4<8>, ScaleOrder::grouped>(job, block)
                 : map_grid<Swizzle128x4<8>, ScaleOrder::single>(job, block);
}

// Of 64 rows beside each other, to the 64 columns of a block.
template <ScaleOrder order>
ElementMap map_strip(const W4a16ScaleJob& job) {
  using Grid = ByteScaleGrid<order>;
  ElementMap map = map_layouts<RowMajor<8>, Grid>({.n = block_columns, .k = job.grid.k},
                                                  {.n = block_columns, .k = 64});
  map.out = place_of<Grid>({.n = job.out_columns(), .k = job.grid.k});
  return map;
}

// None where the scales stay as they are.
ElementTable table_of(const ScaleEncoding& encoding) {
  const auto* const entries = reinterpret_cast<const std::uint8_t*>(encoding.table.data());
  for (unsigned byte = encoding.extent.first; byte <= encoding.extent.last; ++byte) {
    if (entries[byte] != byte) return {.entries = entries, .present = encoding.extent};
  }
  return {};
}

// Blocks that are there in the source or in the result only in part.
class OddBlocks {
 public:
  explicit OddBlocks(const W4a16ScaleJob& job) : job_(job), blocks_(odd_blocks(job)) {
    if (blocks_.empty() || job.storage != BlockScaleStorage::plain) return;
    strip_.emplace(
        grouped() ? map_strip<ScaleOrder::grouped>(job) : map_strip<ScaleOrder::single>(job),
        packing_isa());
  }

  std::int64_t count() const { return std::ssize(blocks_); }

  void run(std::int64_t index, const ScaleEncoding& encoding, const std::byte* in,
           std::byte* out) const {
    const std::int64_t block = blocks_[static_cast<std::size_t>(index)];
    const std::int64_t first = block * block_columns;
    if (!strip_ || first + block_columns > job_.out_columns()) {
      grouped() ? permute_block<ScaleOrder::grouped>(job_, block, encoding.table, in, out)
                : permute_block<ScaleOrder::single>(job_, block, encoding.table, in, out);
      return;
    }
    // Zeros encode to zeros.
    std::vector<std::byte> rows(static_cast<std::size_t>(block_columns * job_.grid.k));
    for (std::int64_t i = 0; i < std::min(block_columns, job_.grid.n - first); ++i) {
      std::memcpy(rows.data() + i * job_.grid.k,
                  in + source_place(job_, job_.rows.source(first + i), 0),
                  static_cast<std::size_t>(job_.grid.k));
    }
    ElementTable table = table_of(encoding);
    table.present.first = 0;  // of rows that are missing
    strip_->run_all(table, rows.data(), out + first);
  }

 private:
  bool grouped() const { return order_of(job_) == ScaleOrder::grouped; }

  const W4a16ScaleJob& job_;
  std::vector<std::int64_t> blocks_;
  std::optional<ElementMover> strip_;
};

// The moves of one expert, whichever encoding it has.
class GridMover {
 public:
  explicit GridMover(const W4a16ScaleJob& job)
      : job_(job), whole_(map_scales(job), packing_isa()), odd_(job) {}

  // That many experts, one after another at `from` and at out.
  void run(const ScaleEncoding& encoding, std::int64_t experts, const std::byte* from,
           std::byte* out, Executor& executor) const {
    const ElementTable table = table_of(encoding);
    const std::int64_t tasks = whole_.tasks() + odd_.count();
    parallel_ranges(executor, experts * tasks, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::byte* const in = from + i / tasks * source_bytes(job_);
        std::byte* const to = out + i / tasks * job_.out_columns() * job_.grid.k;
        const std::int64_t task = i % tasks;
        task < whole_.tasks() ? whole_.run(task, table, in, to)
                              : odd_.run(task - whole_.tasks(), encoding, in, to);
      }
    });
  }

 private:
  const W4a16ScaleJob& job_;
  ElementMover whole_;
  OddBlocks odd_;
};

// Real scales that have no column: what the last block holds past out_columns().
template <ScaleOrder order>
std::int64_t cut_columns(const W4a16ScaleJob& job) {
  std::int64_t cut = 0;
  for (std::int64_t n = job.out_columns() / 64 * 64; n < job.grid.n; ++n) {
    if (ByteScaleGrid<order>::column(n) >= job.out_columns()) ++cut;
  }
  return cut;
}

Result<void> permute_in_place(const W4a16ScaleJob& job, const ScaleEncoding& encoding,
                              std::span<std::byte> scales, Executor& executor) {
  const auto bytes = static_cast<std::size_t>(source_bytes(job));
  FEWBIT_TRY(AlignedBuffer copy, AlignedBuffer::allocate(bytes));
  const GridMover mover(job);
  for (std::size_t first = 0; first < scales.size(); first += bytes) {
    std::memcpy(copy.data(), scales.data() + first, bytes);
    mover.run(encoding, 1, copy.data(), scales.data() + first, executor);
  }
  return {};
}

}  // namespace

namespace {

W4a16ScaleReport sizes_report(const W4a16ScaleJob& job) {
  W4a16ScaleReport report;
  report.block_scales = job.experts * job.grid.n * job.grid.k;
  const std::int64_t cut = order_of(job) == ScaleOrder::grouped
                               ? cut_columns<ScaleOrder::grouped>(job)
                               : cut_columns<ScaleOrder::single>(job);
  report.cut_scales = job.experts * job.grid.k * cut;
  return report;
}

// Some of the experts, which the caches hold: read twice, from memory once.
struct Batch {
  W4a16ScaleJob job;  // of these experts
  std::span<const std::byte> scales;
  std::byte* out;
  W4a16ScaleReport report;
};

std::vector<Batch> batches_of(const W4a16ScaleJob& job, std::span<const std::byte> scales,
                              std::span<std::byte> out) {
  constexpr std::int64_t batch_bytes = 1 << 19;
  const std::int64_t each = std::max<std::int64_t>(batch_bytes / source_bytes(job), 1);
  const std::int64_t out_bytes = job.out_columns() * job.grid.k;
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < job.experts; first += each) {
    Batch batch{.job = job,
                .scales = scales.subspan(static_cast<std::size_t>(first * source_bytes(job))),
                .out = out.data() + first * out_bytes,
                .report = {}};
    batch.job.experts = std::min(each, job.experts - first);
    batches.push_back(std::move(batch));
  }
  return batches;
}

void add_counts(W4a16ScaleReport& all, const W4a16ScaleReport& one) {
  all.nan_scales += one.nan_scales;
  all.negative_scales += one.negative_scales;
  all.flushed_scales += one.flushed_scales;
  all.clamped_scales += one.clamped_scales;
}

// Batches for themselves where there are enough of them for all threads.
template <class Fn>
void each_batch(std::vector<Batch>& batches, Executor& executor, const Fn& fn) {
  if (std::ssize(batches) < 2 * executor.threads()) {
    for (Batch& batch : batches) fn(batch, executor);
    return;
  }
  parallel_for(executor, static_cast<int>(batches.size()),
               [&](int i) { fn(batches[static_cast<std::size_t>(i)], serial_executor()); });
}

// All experts have the factor of the largest scale: a batch that was given another one before that
// was met is done again.
void permute_batches(const W4a16ScaleJob& job, std::vector<Batch>& batches,
                     W4a16ScaleReport& report, Executor& executor) {
  const GridMover mover(job);
  std::atomic<std::uint8_t> largest = 0;
  const auto prepare = [&](Batch& batch, Executor& threads) {
    batch.report = {};
    const ScaleEncoding encoding =
        encode_scales(batch.job, batch.scales, largest.load(), threads, batch.report);
    std::uint8_t known = largest.load();
    while (known < encoding.largest && !largest.compare_exchange_weak(known, encoding.largest)) {
    }
    mover.run(encoding, batch.job.experts, batch.scales.data(), batch.out, threads);
  };
  each_batch(batches, executor, prepare);
  report.factor = scale_factor(job, largest.load());
  each_batch(batches, executor, [&](Batch& batch, Executor& threads) {
    if (batch.report.factor != report.factor) prepare(batch, threads);
  });
  for (const Batch& batch : batches) add_counts(report, batch.report);
}

// Of experts with one encoding.
Result<W4a16ScaleReport> prepare_alike(const W4a16ScaleJob& job,
                                       std::span<const std::byte> block_scales,
                                       std::span<std::byte> out, Executor& executor) {
  W4a16ScaleReport report = sizes_report(job);
  if (out.data() != block_scales.data()) {
    std::vector<Batch> batches = batches_of(job, block_scales, out);
    permute_batches(job, batches, report, executor);
    return report;
  }
  const ScaleEncoding encoding = encode_scales(job, block_scales, 0, executor, report);
  FEWBIT_TRY(permute_in_place(job, encoding, out, executor));
  return report;
}

void add(W4a16ScaleReport& all, const W4a16ScaleReport& one) {
  all.factors.push_back(one.factor);
  all.block_scales += one.block_scales;
  all.nan_scales += one.nan_scales;
  all.negative_scales += one.negative_scales;
  all.flushed_scales += one.flushed_scales;
  all.cut_scales += one.cut_scales;
}

}  // namespace

Result<W4a16ScaleReport> prepare_block_scales(const W4a16ScaleJob& job,
                                              std::span<const std::byte> block_scales,
                                              std::span<std::byte> out, Executor& executor) {
  const bool apart =
      job.factors == W4a16Factors::of_each_expert && job.source != W4a16Source::fp4_e8m0_k32;
  if (!apart) return prepare_alike(job, block_scales, out, executor);
  W4a16ScaleJob one = job;
  one.experts = 1;
  const std::size_t in_bytes = block_scales.size() / static_cast<std::size_t>(job.experts);
  const std::size_t out_bytes = out.size() / static_cast<std::size_t>(job.experts);
  W4a16ScaleReport report;
  for (std::size_t e = 0; e < static_cast<std::size_t>(job.experts); ++e) {
    FEWBIT_TRY(const W4a16ScaleReport part,
               prepare_alike(one, block_scales.subspan(e * in_bytes, in_bytes),
                             out.subspan(e * out_bytes, out_bytes), executor));
    add(report, part);
  }
  return report;
}

void prepare_global_scales(const W4a16ScaleJob& job, std::span<const std::byte> globals,
                           std::span<float> out, W4a16ScaleReport& report) {
  for (std::size_t expert = 0; expert < out.size(); ++expert) {
    float global = 0.0F;
    std::memcpy(&global, globals.data() + expert * sizeof global, sizeof global);
    if (job.source == W4a16Source::compressed_tensors) global = 1.0F / global;
    // Two steps as the engines do them: the first may overflow although the result would not.
    const bool raw = job.source == W4a16Source::fp4_e8m0_k32;
    const float factor = report.factors.empty() ? report.factor : report.factors[expert];
    const float stored = raw ? global : global * w4a16_global_lift(job.activation_dtype) / factor;
    out[expert] = stored;
    if (!std::isfinite(stored)) ++report.nonfinite_globals;
    if (stored == 0.0F && global != 0.0F) ++report.flushed_globals;
  }
}

}  // namespace fewbit
