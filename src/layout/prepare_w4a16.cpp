// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_w4a16.hpp"

#include <array>
#include <functional>
#include <string>

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

bool in_place(const Part& part) {
  return part.output.tiles.data() == part.matrix.codes.bytes.data();
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

Result<void> check_overlap(const Part& w13, const Part& w2) {
  const auto written = [](const Part& p) {
    return std::array{
        Region{p.name + " tiles output", p.output.tiles},
        Region{p.name + " scales output", p.output.scales},
        Region{p.name + " global scales output", std::as_bytes(p.output.global_scales)}};
  };
  const auto read = [](const Part& p) {
    return std::array{Region{p.name + " codes", p.matrix.codes.bytes},
                      Region{p.name + " block scales", p.matrix.block_scales.bytes},
                      Region{p.name + " global scales", p.matrix.global_scales.bytes}};
  };
  const auto clash = [](const Region& a, const Region& b) {
    return Error{ErrorCode::invalid_argument, "overlaps the " + b.name, a.name};
  };
  const std::array<const Part*, 2> parts = {&w13, &w2};
  for (const Part* a : parts) {
    for (const Region& out : written(*a)) {
      for (const Part* b : parts) {
        for (const Region& in : read(*b)) {
          const bool replaced = a == b && in_place(*a) &&
                                out.bytes.data() == a->output.tiles.data() &&
                                in.bytes.data() == a->matrix.codes.bytes.data();
          if (!replaced && overlap(out.bytes, in.bytes)) return clash(out, in);
        }
        for (const Region& other : written(*b)) {
          if (out.name < other.name && overlap(out.bytes, other.bytes)) return clash(out, other);
        }
      }
    }
  }
  return {};
}

Result<void> pack_codes(const Part& part, const B12xPackJob& job, Executor& executor) {
  if (in_place(part)) return pack_b12x_in_place(job, part.output.tiles, executor);
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
                     .experts = experts,
                     .k = plan.dims.k,
                     .grid = plan.scale_grid,
                     .rows = rows}};
}

Result<W4a16ScaleReport> prepare_part(const Part& part, const PartJob& job, Executor& executor) {
  FEWBIT_TRY(pack_codes(part, job.codes, executor));
  W4a16ScaleReport report = prepare_block_scales(job.scales, part.matrix.block_scales.bytes,
                                                 part.output.scales, executor);
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
