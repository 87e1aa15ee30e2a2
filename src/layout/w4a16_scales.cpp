// SPDX-License-Identifier: Apache-2.0
#include "layout/w4a16_scales.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"
#include "core/float_convert.hpp"
#include "layout/byte_survey.hpp"
#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/parallel_ranges.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit {
namespace {

using ByteTable = std::array<std::byte, 256>;

std::int64_t source_bytes(const W4a16ScaleJob& job) {
  return job.storage == BlockScaleStorage::plain ? RowMajor<8>::bytes(job.grid)
                                                 : Swizzle128x4<8>::bytes(job.grid);
}

std::int64_t source_place(const W4a16ScaleJob& job, std::int64_t row, std::int64_t group) {
  return job.storage == BlockScaleStorage::plain
             ? RowMajor<8>::place(job.grid, row, group).byte
             : Swizzle128x4<8>::place(job.grid, row, group).byte;
}

// Calls visit(bytes) for the scales of the rows of all experts from `begin` to `end`, padding left
// out.
template <class Visit>
void visit_rows(const W4a16ScaleJob& job, const std::byte* scales, std::int64_t begin,
                std::int64_t end, const Visit& visit) {
  if (source_bytes(job) == job.grid.n * job.grid.k) {
    // Without padding any part of them is as good as these rows.
    visit(std::span(scales + begin * job.grid.k,
                    static_cast<std::size_t>((end - begin) * job.grid.k)));
    return;
  }
  std::vector<std::byte> row_bytes(static_cast<std::size_t>(job.grid.k));
  for (std::int64_t row = begin; row < end; ++row) {
    const std::byte* const expert = scales + row / job.grid.n * source_bytes(job);
    for (std::int64_t group = 0; group < job.grid.k; ++group) {
      row_bytes[static_cast<std::size_t>(group)] =
          expert[source_place(job, row % job.grid.n, group)];
    }
    visit(std::span<const std::byte>(row_bytes));
  }
}

// All scales of a job, to be asked what they hold: each question reads them once.
class Survey {
 public:
  Survey(const W4a16ScaleJob& job, std::span<const std::byte> scales, Executor& executor)
      : job_(job), scales_(scales), executor_(executor) {}

  ByteRange extent() const {
    return ask(ByteRange{.first = 255, .last = 0}, extent_of, [](ByteRange a, ByteRange b) {
      return ByteRange{.first = std::min(a.first, b.first), .last = std::max(a.last, b.last)};
    });
  }
  std::int64_t count(ByteRange range) const {
    return ask(
        std::int64_t{0},
        [range](std::span<const std::byte> bytes) { return count_between(bytes, range); },
        [](std::int64_t a, std::int64_t b) { return a + b; });
  }
  std::uint8_t largest(ByteRange range) const {
    return ask(
        std::uint8_t{0},
        [range](std::span<const std::byte> bytes) { return largest_between(bytes, range); },
        [](std::uint8_t a, std::uint8_t b) { return std::max(a, b); });
  }

 private:
  template <class Answer, class Question, class Join>
  Answer ask(Answer none, const Question& question, const Join& join) const {
    constexpr std::int64_t part_bytes = 1 << 16;
    const std::int64_t part_rows = std::max<std::int64_t>(part_bytes / job_.grid.k, 1);
    const std::int64_t rows = job_.experts * job_.grid.n;
    std::vector<Answer> of_part(static_cast<std::size_t>(ceil_div(rows, part_rows)), none);
    parallel_ranges(executor_, std::ssize(of_part), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t part = begin; part < end; ++part) {
        Answer& answer = of_part[static_cast<std::size_t>(part)];
        visit_rows(
            job_, scales_.data(), part * part_rows, std::min((part + 1) * part_rows, rows),
            [&](std::span<const std::byte> bytes) { answer = join(answer, question(bytes)); });
      }
    });
    for (const Answer& answer : of_part) none = join(none, answer);
    return none;
  }

  const W4a16ScaleJob& job_;
  std::span<const std::byte> scales_;
  Executor& executor_;
};

// Positive e4m3 scales rise with their bytes.
constexpr ByteRange positive_f8{.first = 0x01, .last = 0x7e};
constexpr ByteRange negative_f8{.first = 0x81, .last = 0xfe};

// What becomes of each byte, and which bytes there are.
struct Encoding {
  ByteTable table{};
  ByteRange extent;
};

Encoding encode_nvfp4(const Survey& survey, const W4a16ScaleJob& job, W4a16ScaleReport& report) {
  Encoding encoding{.table = {}, .extent = survey.extent()};
  std::uint8_t largest = encoding.extent.last;
  if (largest > positive_f8.last) {
    largest = survey.largest(positive_f8);
    report.negative_scales = survey.count(negative_f8);
    report.nan_scales = survey.count({0x7f, 0x7f}) + survey.count({0xff, 0xff});
  }
  // The engines never rescale for f16; with factors of their own experts need not follow them.
  const DType rule =
      job.factors == W4a16Factors::of_each_expert ? DType::bf16 : job.activation_dtype;
  report.factor = nvfp4_scale_factor(f8_e4m3_to_f32(largest), rule);
  ByteRange flushed{.first = positive_f8.first, .last = 0};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::uint8_t encoded =
        nvfp4_scale_byte(f8_e4m3_to_f32(static_cast<std::uint8_t>(byte)), report.factor);
    encoding.table[byte] = std::byte{encoded};
    if (encoded == 0 && byte <= positive_f8.last) flushed.last = static_cast<std::uint8_t>(byte);
  }
  if (flushed.last >= encoding.extent.first && flushed.last != 0) {
    report.flushed_scales = survey.count(flushed);
  }
  return encoding;
}

Encoding encode_e8m0(const Survey& survey, W4a16ScaleReport& report) {
  constexpr std::uint8_t nan = 255;
  Encoding encoding{.table = {}, .extent = survey.extent()};
  ByteRange clamped{.first = nan, .last = nan - 1};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::uint8_t encoded = e8m0_scale_byte(static_cast<std::uint8_t>(byte));
    encoding.table[byte] = std::byte{encoded};
    if (encoded != byte) clamped.first = std::min(clamped.first, static_cast<std::uint8_t>(byte));
  }
  if (encoding.extent.last >= clamped.first) {
    report.clamped_scales = survey.count(clamped);
    report.nan_scales = survey.count({nan, nan});
  }
  return encoding;
}

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

// That many experts, one after another at `from` and at out.
void permute_experts(const W4a16ScaleJob& job, const Encoding& encoding, std::int64_t experts,
                     const std::byte* from, std::byte* out, Executor& executor) {
  ElementMap map = map_scales(job);
  map.table = reinterpret_cast<const std::uint8_t*>(encoding.table.data());
  map.present = encoding.extent;
  const ElementMover mover(std::move(map), packing_isa());
  const bool grouped = order_of(job) == ScaleOrder::grouped;
  const auto permute =
      grouped ? permute_block<ScaleOrder::grouped> : permute_block<ScaleOrder::single>;
  const std::vector<std::int64_t> odd = odd_blocks(job);
  const std::int64_t tasks = mover.tasks() + std::ssize(odd);
  parallel_ranges(executor, experts * tasks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::byte* const in = from + i / tasks * source_bytes(job);
      std::byte* const to = out + i / tasks * job.out_columns() * job.grid.k;
      const std::int64_t task = i % tasks;
      if (task < mover.tasks()) {
        mover.run(task, in, to);
      } else {
        permute(job, odd[static_cast<std::size_t>(task - mover.tasks())], encoding.table, in, to);
      }
    }
  });
}

// Real scales that have no column: what the last block holds past out_columns().
template <ScaleOrder order>
std::int64_t cut_columns(const W4a16ScaleJob& job) {
  std::int64_t cut = 0;
  for (std::int64_t n = job.out_columns() / 64 * 64; n < job.grid.n; ++n) {
    if (ByteScaleGrid<order>::column(n) >= job.out_columns()) ++cut;
  }
  return cut;
}

Result<void> permute_in_place(const W4a16ScaleJob& job, const Encoding& encoding,
                              std::span<std::byte> scales, Executor& executor) {
  const auto bytes = static_cast<std::size_t>(source_bytes(job));
  FEWBIT_TRY(AlignedBuffer copy, AlignedBuffer::allocate(bytes));
  for (std::size_t first = 0; first < scales.size(); first += bytes) {
    std::memcpy(copy.data(), scales.data() + first, bytes);
    permute_experts(job, encoding, 1, copy.data(), scales.data() + first, executor);
  }
  return {};
}

}  // namespace

namespace {

// Of experts with one encoding.
Result<W4a16ScaleReport> prepare_alike(const W4a16ScaleJob& job,
                                       std::span<const std::byte> block_scales,
                                       std::span<std::byte> out, Executor& executor) {
  W4a16ScaleReport report;
  report.block_scales = job.experts * job.grid.n * job.grid.k;
  const std::int64_t cut = order_of(job) == ScaleOrder::grouped
                               ? cut_columns<ScaleOrder::grouped>(job)
                               : cut_columns<ScaleOrder::single>(job);
  report.cut_scales = job.experts * job.grid.k * cut;
  const Survey survey(job, block_scales, executor);
  const Encoding encoding = job.source == W4a16Source::fp4_e8m0_k32
                                ? encode_e8m0(survey, report)
                                : encode_nvfp4(survey, job, report);
  if (out.data() == block_scales.data()) {
    FEWBIT_TRY(permute_in_place(job, encoding, out, executor));
  } else {
    permute_experts(job, encoding, job.experts, block_scales.data(), out.data(), executor);
  }
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
