// SPDX-License-Identifier: Apache-2.0
#include "layout/w4a16_encoding.hpp"

#include <algorithm>
#include <vector>

#include "core/checked.hpp"
#include "core/float_convert.hpp"
#include "layout/parallel_ranges.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit {
namespace {

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

ScaleEncoding encode_nvfp4(const Survey& survey, const W4a16ScaleJob& job, std::uint8_t known,
                           W4a16ScaleReport& report) {
  ScaleEncoding encoding{.table = {}, .extent = survey.extent(), .largest = 0};
  std::uint8_t largest = encoding.extent.last;
  if (largest > positive_f8.last) {
    largest = survey.largest(positive_f8);
    report.negative_scales = survey.count(negative_f8);
    report.nan_scales = survey.count({0x7f, 0x7f}) + survey.count({0xff, 0xff});
  }
  encoding.largest = largest;
  report.factor = scale_factor(job, std::max(largest, known));
  ByteRange flushed{.first = positive_f8.first, .last = 0};
  for (std::size_t byte = encoding.extent.first; byte <= encoding.extent.last; ++byte) {
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

ScaleEncoding encode_e8m0(const Survey& survey, W4a16ScaleReport& report) {
  constexpr std::uint8_t nan = 255;
  ScaleEncoding encoding{.table = {}, .extent = survey.extent(), .largest = 0};
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

}  // namespace

float scale_factor(const W4a16ScaleJob& job, std::uint8_t largest) {
  if (job.source == W4a16Source::fp4_e8m0_k32) return 1.0F;
  // The engines never rescale for f16; with factors of their own experts need not follow them.
  const DType rule =
      job.factors == W4a16Factors::of_each_expert ? DType::bf16 : job.activation_dtype;
  return nvfp4_scale_factor(f8_e4m3_to_f32(largest), rule);
}

ScaleEncoding encode_scales(const W4a16ScaleJob& job, std::span<const std::byte> scales,
                            std::uint8_t known, Executor& executor, W4a16ScaleReport& report) {
  const Survey survey(job, scales, executor);
  return job.source == W4a16Source::fp4_e8m0_k32 ? encode_e8m0(survey, report)
                                                 : encode_nvfp4(survey, job, known, report);
}

}  // namespace fewbit
