// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_packed_fp4.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "backends/foreign/undo.hpp"
#include "core/float_convert.hpp"
#include "fewbit/layouts.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/scale_grid.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit::foreign {
namespace {

Fp4Sizes sizes_of(const PackedFp4Form& form, const MoeProblem& problem) {
  std::int64_t multiple = 1;
  if (form.padding == PackedPadding::marlin) multiple = problem.hidden_size % 128 == 0 ? 64 : 128;
  if (form.padding == PackedPadding::blocks && gating_of(problem) == Gating::ungated) {
    multiple = 128;
  }
  return padded_sizes(problem, 1, multiple);
}

Result<void> check_tiles(const Fp4Sizes& sizes, std::int64_t group, const std::string& where) {
  for (const Dims d : {sizes.w13(), sizes.w2()}) {
    if (d.n % B12xPacked::tile_n == 0 && d.k % group == 0) continue;
    return Error{ErrorCode::unsupported,
                 fmt::format("a matrix of {} rows and {} columns, expected multiples of {} and {}",
                             d.n, d.k, B12xPacked::tile_n, group),
                 where};
  }
  return {};
}

Result<void> refuse_lost(const MoeProblem& problem, const char* name,
                         const W4a16ScaleReport& report) {
  const std::int64_t globals = report.nonfinite_globals + report.flushed_globals;
  const std::int64_t lost = report.nan_scales + report.negative_scales + report.flushed_scales +
                            report.clamped_scales + globals;
  if (lost == 0) return {};
  return Error{
      ErrorCode::unsupported,
      fmt::format("{} of {} scales of {} would be lost: {} NaN, {} negative, {} too small "
                  "beside the largest, {} above 2^120, {} global",
                  lost, report.block_scales, name, report.nan_scales, report.negative_scales,
                  report.flushed_scales, report.clamped_scales, globals),
      problem.where};
}

W4a16Matrix input_of(const Fp4Matrix& source, const float& global) {
  return {.codes = source.codes.tensor.view,
          .block_scales = source.scales.tensor.view,
          .global_scales = {.dtype = DType::f32,
                            .shape = {1},
                            .bytes = std::as_bytes(std::span(&global, 1)),
                            .device = {}}};
}

W4a16MatrixOutput output_of(const MoePlan& plan, ExpertSpans to, const std::string& name,
                            std::span<float> global) {
  return {.tiles = share_of(plan, to, name + ".words"),
          .scales = share_of(plan, to, name + ".scales"),
          .global_scales = global};
}

struct Undone {
  const char* name;
  const Fp4Matrix& source;
  Dims dims;
  float global = 1.0F;  // of the source
  float stored = 1.0F;
};

// What a byte scale and the stored global scale mean together, both as the source has them and as
// the kernels do: products with powers of two, exact in double.
template <ScaleOrder order>
Result<void> undo_nvfp4_scales(const MoeProblem& problem, const Undone& u,
                               std::span<const std::byte> share) {
  const Dims grid{.n = u.dims.n, .k = u.dims.k / 16};
  const int bias = problem.activation_dtype == DType::bf16 ? 126 : 14;
  for (std::int64_t n = 0; n < grid.n; ++n) {
    for (std::int64_t g = 0; g < grid.k; ++g) {
      const auto code = std::to_integer<std::uint8_t>(
          u.source.scales.bytes[static_cast<std::size_t>(n * grid.k + g)]);
      const auto byte =
          static_cast<std::uint8_t>(read_bits<8>(share, ByteScaleGrid<order>::place(grid, n, g)));
      const double want = std::ldexp(double{f8_e4m3_to_f32(code)} * double{u.global}, bias);
      const double has = double{nvfp4_scale_byte_value(byte)} * double{u.stored};
      if (has == want) continue;
      return Error{ErrorCode::inconsistent,
                   fmt::format("{}.scales: row {} group {} means {}, the source's {}", u.name, n, g,
                               std::ldexp(has, -bias), std::ldexp(want, -bias)),
                   ""};
    }
  }
  return {};
}

Result<void> undo_matrix(const MoeProblem& problem, const MoePlan& plan, const Undone& u,
                         ConstExpertSpans from) {
  const std::string words = std::string(u.name) + ".words";
  const std::string scales = std::string(u.name) + ".scales";
  const bool grouped = scale_order(u.dims.k, fp4_group(problem)) == ScaleOrder::grouped;
  FEWBIT_TRY(compare_undone<B12xPacked>(plan, from, words, u.dims, u.source.codes.bytes));
  const Dims grid{.n = u.dims.n, .k = u.dims.k / fp4_group(problem)};
  if (is_nvfp4(problem)) {
    FEWBIT_TRY(const auto share, share_to_undo(plan, from, scales, grid.n * grid.k));
    return grouped ? undo_nvfp4_scales<ScaleOrder::grouped>(problem, u, share)
                   : undo_nvfp4_scales<ScaleOrder::single>(problem, u, share);
  }
  return grouped
             ? compare_undone<GroupedByteScales>(plan, from, scales, grid, u.source.scales.bytes)
             : compare_undone<SingleByteScales>(plan, from, scales, grid, u.source.scales.bytes);
}

}  // namespace

Result<void> check_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem) {
  FEWBIT_TRY(check_kind(problem, form.kinds, form.expected));
  if (problem.biases) {
    return Error{ErrorCode::unsupported, "biases of FP4 experts, expected none", problem.where};
  }
  FEWBIT_TRY(check_tiles(sizes_of(form, problem), fp4_group(problem), problem.where));
  return check_one_global(problem);
}

Result<MoePlan> plan_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem) {
  FEWBIT_TRY(check_packed_fp4(form, problem));
  const Fp4Sizes sizes = sizes_of(form, problem);
  MoePlan plan;
  plan.experts = problem.num_experts;
  const std::int64_t group = fp4_group(problem);
  const auto matrix = [&](const char* codes, const char* scales, const Scheme& scheme, Dims d) {
    Result<void> done =
        add_part(plan, scheme, {codes, "marlin_4bit", "", DType::i32, {d.k / 16, d.n / 64 * 128}});
    if (!done) return done;
    return add_part(plan, scheme,
                    {scales,
                     "byte_scale_grid",
                     group == 16 ? "e4m3_k16" : "e8m0_k32",
                     DType::u8,
                     {d.k / group, d.n}});
  };
  FEWBIT_TRY(matrix("w13.words", "w13.scales", problem.gate_up, sizes.w13()));
  FEWBIT_TRY(matrix("w2.words", "w2.scales", problem.down, sizes.w2()));
  FEWBIT_TRY(add_part(plan, problem.down, {"global_scales", "row_major", "f32", DType::f32, {2}}));
  return plan;
}

Result<void> pack_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert, ExpertSpans to) {
  const Fp4Sizes sizes = sizes_of(form, problem);
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, FirstPart::gate));
  W4a16Input input;
  input.source = is_nvfp4(problem) ? W4a16Source::modelopt_nvfp4 : W4a16Source::fp4_e8m0_k32;
  input.block_scale_storage = BlockScaleStorage::plain;
  input.hidden_size = sizes.hidden;
  input.intermediate_size = sizes.intermediate;
  input.gating = sizes.gating;
  input.w13_order = W13Order::gate_up;
  input.activation_dtype = problem.activation_dtype;
  // Also in f16, where the engines have no factor: 6 * 2^-14 * 57344, the largest product of a code
  // and its scale, is 21, so larger scales only make products normal that were not.
  input.factors = W4a16Factors::of_each_expert;
  input.w13 = input_of(source.w13, source.globals[0]);
  input.w2 = input_of(source.w2, source.globals[1]);
  std::array<float, 2> globals{};
  const W4a16Output output{.w13 = output_of(plan, to, "w13", std::span(globals).first(1)),
                           .w2 = output_of(plan, to, "w2", std::span(globals).last(1))};
  FEWBIT_TRY(const DeviceInfo machine, detect_cpu());
  FEWBIT_TRY(const W4a16Report report,
             prepare_w4a16(input, output, machine.isa, serial_executor()));
  FEWBIT_TRY(refuse_lost(problem, "w13", report.w13));
  FEWBIT_TRY(refuse_lost(problem, "w2", report.w2));
  return put(plan, to, "global_scales", std::as_bytes(std::span(globals)));
}

Result<void> undo_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert,
                             ConstExpertSpans from) {
  const Fp4Sizes sizes = sizes_of(form, problem);
  FEWBIT_TRY(const Fp4Source source, fp4_source(expert, sizes, FirstPart::gate));
  FEWBIT_TRY(const auto stored, share_to_undo(plan, from, "global_scales", 8));
  std::array<float, 2> globals{};
  std::memcpy(globals.data(), stored.data(), sizeof globals);
  FEWBIT_TRY(undo_matrix(problem, plan,
                         {.name = "w13",
                          .source = source.w13,
                          .dims = sizes.w13(),
                          .global = source.globals[0],
                          .stored = globals[0]},
                         from));
  return undo_matrix(problem, plan,
                     {.name = "w2",
                      .source = source.w2,
                      .dims = sizes.w2(),
                      .global = source.globals[1],
                      .stored = globals[1]},
                     from);
}

}  // namespace fewbit::foreign
