// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fewbit/layouts.hpp"
#include "layout/pack_b12x.hpp"
#include "layout/w4a16_scales.hpp"

namespace fewbit {
namespace {

// One matrix with its plan and where it goes.
struct Part {
  std::string name;
  const W4a16Matrix& matrix;
  const W4a16MatrixPlan& plan;
  const W4a16MatrixOutput& output;
};

struct Region {
  std::string name;
  std::span<const std::byte> bytes;
};

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

bool same_memory(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() == b.data() && a.size() == b.size();
}

Result<void> check_size(const std::string& where, std::size_t found, std::int64_t expected) {
  if (found == static_cast<std::size_t>(expected)) return {};
  return Error{ErrorCode::invalid_argument,
               "holds " + std::to_string(found) + " bytes, expected " + std::to_string(expected),
               where};
}

Result<void> check_sizes(const Part& part, std::int64_t experts) {
  const W4a16MatrixOutput& out = part.output;
  FEWBIT_TRY(check_size(part.name + " tiles output", out.tiles.size(), part.plan.tiles_bytes));
  FEWBIT_TRY(check_size(part.name + " scales output", out.scales.size(), part.plan.scales_bytes));
  return check_size(part.name + " global scales output", out.global_scales.size_bytes(),
                    experts * std::int64_t{sizeof(float)});
}

std::array<Region, 3> written(const Part& part) {
  return {Region{part.name + " tiles output", part.output.tiles},
          Region{part.name + " scales output", part.output.scales},
          Region{part.name + " global scales output", std::as_bytes(part.output.global_scales)}};
}

// In the order of what replaces it.
std::array<Region, 3> read(const Part& part) {
  return {Region{part.name + " codes", part.matrix.codes.bytes},
          Region{part.name + " block scales", part.matrix.block_scales.bytes},
          Region{part.name + " global scales", part.matrix.global_scales.bytes}};
}

Error clash(const Region& a, const Region& b) {
  return {ErrorCode::invalid_argument, "overlaps the " + b.name, a.name};
}

// What one matrix writes against what one (the same or the other) reads. Only the very memory of
// its own source may be replaced.
Result<void> check_against_reads(const Part& writer, const Part& reader) {
  const auto outputs = written(writer);
  const auto inputs = read(reader);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      const bool replaced =
          &writer == &reader && i == j && same_memory(outputs[i].bytes, inputs[j].bytes);
      if (!replaced && overlap(outputs[i].bytes, inputs[j].bytes)) {
        return clash(outputs[i], inputs[j]);
      }
    }
  }
  return {};
}

Result<void> check_overlap(const Part& w13, const Part& w2) {
  std::vector<Region> outputs;
  for (const Part* writer : {&w13, &w2}) {
    for (const Part* reader : {&w13, &w2}) {
      FEWBIT_TRY(check_against_reads(*writer, *reader));
    }
    for (Region& region : written(*writer)) {
      for (const Region& other : outputs) {
        if (overlap(region.bytes, other.bytes)) return clash(region, other);
      }
      outputs.push_back(std::move(region));
    }
  }
  return {};
}

Result<void> pack_codes(const Part& part, const B12xPackJob& job, Executor& executor) {
  if (same_memory(part.output.tiles, part.matrix.codes.bytes)) {
    return pack_b12x_in_place(job, part.output.tiles, executor);
  }
  pack_b12x(job, part.matrix.codes.bytes, part.output.tiles, executor);
  return {};
}

struct PartJob {
  B12xPackJob codes;
  W4a16ScaleJob scales;
};

PartJob make_job(const W4a16Input& input, const W4a16MatrixPlan& plan, std::int64_t experts,
                 RowRotation rows, IsaLevel isa) {
  return {.codes = {.experts = experts, .dims = plan.dims, .rows = rows, .isa = isa},
          .scales = {.source = input.source,
                     .storage = input.block_scale_storage,
                     .activation_dtype = input.activation_dtype,
                     .factors = input.factors,
                     .experts = experts,
                     .k = plan.dims.k,
                     .grid = plan.scale_grid,
                     .rows = rows}};
}

Result<W4a16ScaleReport> prepare_part(const Part& part, const PartJob& job, Executor& executor) {
  FEWBIT_TRY(pack_codes(part, job.codes, executor));
  FEWBIT_TRY(W4a16ScaleReport report,
             prepare_block_scales(job.scales, part.matrix.block_scales.bytes, part.output.scales,
                                  executor));
  prepare_global_scales(job.scales, part.matrix.global_scales.bytes, part.output.global_scales,
                        report);
  return report;
}

}  // namespace

Result<W4a16Report> prepare_w4a16(const W4a16Input& input, const W4a16Output& output, IsaLevel isa,
                                  Executor& executor) {
  FEWBIT_TRY(const W4a16Plan plan, plan_w4a16(input));
  const Part w13{.name = "w13", .matrix = input.w13, .plan = plan.w13, .output = output.w13};
  const Part w2{.name = "w2", .matrix = input.w2, .plan = plan.w2, .output = output.w2};
  FEWBIT_TRY(check_sizes(w13, plan.experts));
  FEWBIT_TRY(check_sizes(w2, plan.experts));
  FEWBIT_TRY(check_overlap(w13, w2));

  const RowRotation w13_rows = to_gate_up(plan.w13.dims.n, input.gating, input.w13_order);
  const RowRotation w2_rows{.rows = plan.w2.dims.n, .shift = 0};
  W4a16Report report;
  FEWBIT_TRY(report.w13,
             prepare_part(w13, make_job(input, plan.w13, plan.experts, w13_rows, isa), executor));
  FEWBIT_TRY(report.w2,
             prepare_part(w2, make_job(input, plan.w2, plan.experts, w2_rows, isa), executor));
  return report;
}

}  // namespace fewbit
