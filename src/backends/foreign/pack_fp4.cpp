// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/pack_fp4.hpp"

#include <fmt/format.h>

#include <array>

#include "backends/foreign/expert_matrices.hpp"
#include "backends/foreign/rules.hpp"
#include "canonical/one_global.hpp"
#include "core/checked.hpp"
#include "layout/prepare_trtllm.hpp"
#include "layout/prepare_w4a16.hpp"

namespace fewbit::foreign {
namespace {

constexpr std::int64_t group = 16;

// Sizes with the zeros that the kernels' tiles ask for.
struct Sizes {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  Gating gating = Gating::gated;

  Dims w13() const { return {.n = intermediate * (gating == Gating::gated ? 2 : 1), .k = hidden}; }
  Dims w2() const { return {.n = hidden, .k = intermediate}; }
};

Gating gating_of(const MoeProblem& problem) {
  return activation_gated(problem.activation.kind) ? Gating::gated : Gating::ungated;
}

Sizes trtllm_sizes(const MoeProblem& problem) {
  const Gating gating = gating_of(problem);
  return {.hidden = round_up<std::int64_t>(problem.hidden_size, 256),
          .intermediate =
              round_up<std::int64_t>(problem.intermediate_size, gating == Gating::gated ? 64 : 128),
          .gating = gating};
}

Sizes packed_sizes(const MoeProblem& problem) {
  const std::int64_t tile = problem.hidden_size % 128 == 0 ? 64 : 128;
  return {.hidden = problem.hidden_size,
          .intermediate = round_up<std::int64_t>(problem.intermediate_size, tile),
          .gating = gating_of(problem)};
}

struct Buffer {
  const char* name;
  const char* layout;
  const char* scale_format;
  DType dtype;
  Shape shape;
};
Result<void> add(MoePlan& plan, const Scheme& scheme, Buffer buffer) {
  return plan.add({.name = buffer.name,
                   .layout = buffer.layout,
                   .scale_format = buffer.scale_format,
                   .source = scheme_text(scheme),
                   .dtype = buffer.dtype,
                   .shape = std::move(buffer.shape)});
}

// Codes and block scales of both matrices, padded.
struct Source {
  OwnedTensor w13_codes;
  OwnedTensor w13_scales;
  OwnedTensor w2_codes;
  OwnedTensor w2_scales;
  std::array<float, 2> globals{};  // w13, w2
};
Result<Source> source_of(const ExpertWeights& given, const Sizes& sizes, FirstPart first) {
  FEWBIT_TRY(const ExpertWeights expert, with_one_global(given));
  const Stack w13 = w13_stack(expert, first);
  const Stack w2 = w2_stack(expert);
  const Padding in{.rows = sizes.intermediate, .columns = sizes.hidden};
  const Padding out{.rows = sizes.hidden, .columns = sizes.intermediate};
  Source source;
  source.globals[0] = expert.up.global_scale;
  source.globals[1] = expert.down.global_scale;
  FEWBIT_TRY(source.w13_codes, code_bytes(w13, in));
  FEWBIT_TRY(source.w13_scales, scale_bytes(w13, in));
  FEWBIT_TRY(source.w2_codes, code_bytes(w2, out));
  FEWBIT_TRY(source.w2_scales, scale_bytes(w2, out));
  return source;
}

std::span<std::byte> share(const MoePlan& plan, ExpertSpans to, const char* name) {
  return to[static_cast<std::size_t>(plan.index(name))];
}

Result<void> refuse_lost(const MoeProblem& problem, const char* name,
                         const W4a16ScaleReport& report) {
  const std::int64_t lost = report.nan_scales + report.negative_scales + report.flushed_scales +
                            report.nonfinite_globals + report.flushed_globals;
  if (lost == 0) return {};
  return Error{
      ErrorCode::unsupported,
      fmt::format("{} of {} scales of {} would be lost: {} NaN, {} negative, {} too small "
                  "beside the largest, {} global",
                  lost, report.block_scales, name, report.nan_scales, report.negative_scales,
                  report.flushed_scales, report.nonfinite_globals + report.flushed_globals),
      problem.where};
}

}  // namespace

Result<void> check_nvfp4(const MoeProblem& problem) {
  for (const Scheme* scheme : {&problem.gate_up, &problem.down}) {
    if (weight_kind(*scheme) == WeightKind::nvfp4) continue;
    return Error{ErrorCode::unsupported,
                 "the layout of " + scheme_text(*scheme) + ", expected NVFP4", problem.where};
  }
  if (problem.biases) {
    return Error{ErrorCode::unsupported, "biases of NVFP4 experts, expected none", problem.where};
  }
  if (problem.two_scale_experts == 0) return {};
  return Error{
      ErrorCode::unsupported,
      fmt::format("gate and up of {} experts have two global scales that block scales can't make "
                  "one exactly, and the kernels have one",
                  problem.two_scale_experts),
      problem.where};
}

Result<void> check_b12x(const MoeProblem& problem) {
  if (activation_kind(problem.gate_up) != ActivationKind::none) {
    return Error{ErrorCode::unsupported,
                 "weights that ask for NVFP4 activations; only the form for 16-bit activations is "
                 "prepared",
                 problem.where};
  }
  return check_nvfp4(problem);
}

Result<MoePlan> plan_trtllm_nvfp4_experts(const MoeProblem& problem,
                                          const ExpertWeights& /*first*/) {
  FEWBIT_TRY(check_nvfp4(problem));
  const Sizes sizes = trtllm_sizes(problem);
  MoePlan plan;
  plan.experts = problem.num_experts;
  const auto matrix = [&](const char* codes, const char* scales, const Scheme& scheme, Dims d) {
    Result<void> done = add(plan, scheme, {codes, "trtllm_rows", "", DType::u8, {d.n, d.k / 2}});
    if (!done) return done;
    return add(plan, scheme,
               {scales,
                "trtllm_rows_128x4",
                "f8_e4m3",
                DType::f8_e4m3,
                {d.n, round_up<std::int64_t>(d.k / group, 4)}});
  };
  FEWBIT_TRY(matrix("w13.codes", "w13.scales", problem.gate_up, sizes.w13()));
  FEWBIT_TRY(matrix("w2.codes", "w2.scales", problem.down, sizes.w2()));
  FEWBIT_TRY(add(plan, problem.down, {"global_scales", "row_major", "f32", DType::f32, {2}}));
  return plan;
}

Result<void> pack_trtllm_nvfp4_expert(const MoeProblem& problem, const MoePlan& plan,
                                      const ExpertWeights& expert, ExpertSpans to) {
  const Sizes sizes = trtllm_sizes(problem);
  FEWBIT_TRY(const Source source, source_of(expert, sizes, FirstPart::up));
  TrtllmFp4Input input;
  input.hidden_size = sizes.hidden;
  input.intermediate_size = sizes.intermediate;
  input.gating = sizes.gating;
  input.gemm1 = {.codes = source.w13_codes.tensor.view, .scales = source.w13_scales.tensor.view};
  input.gemm2 = {.codes = source.w2_codes.tensor.view, .scales = source.w2_scales.tensor.view};
  FEWBIT_TRY(const TrtllmResult result, prepare_trtllm_fp4(input));
  FEWBIT_TRY(put(plan, to, "w13.codes", result.gemm1.codes.view.bytes));
  FEWBIT_TRY(put(plan, to, "w13.scales", result.gemm1.scales.view.bytes));
  FEWBIT_TRY(put(plan, to, "w2.codes", result.gemm2.codes.view.bytes));
  FEWBIT_TRY(put(plan, to, "w2.scales", result.gemm2.scales.view.bytes));
  return put(plan, to, "global_scales", std::as_bytes(std::span(source.globals)));
}

Result<MoePlan> plan_b12x_experts(const MoeProblem& problem, const ExpertWeights& first) {
  FEWBIT_TRY(check_b12x(problem));
  return plan_packed_nvfp4_experts(problem, first);
}

Result<MoePlan> plan_packed_nvfp4_experts(const MoeProblem& problem,
                                          const ExpertWeights& /*first*/) {
  FEWBIT_TRY(check_nvfp4(problem));
  const Sizes sizes = packed_sizes(problem);
  MoePlan plan;
  plan.experts = problem.num_experts;
  const auto matrix = [&](const char* codes, const char* scales, const Scheme& scheme, Dims d) {
    Result<void> done =
        add(plan, scheme, {codes, "b12x_packed", "", DType::i32, {d.k / 16, d.n / 64 * 128}});
    if (!done) return done;
    return add(plan, scheme,
               {scales, "byte_scale_grid", "e4m3_k16", DType::u8, {d.k / group, d.n}});
  };
  FEWBIT_TRY(matrix("w13.words", "w13.scales", problem.gate_up, sizes.w13()));
  FEWBIT_TRY(matrix("w2.words", "w2.scales", problem.down, sizes.w2()));
  FEWBIT_TRY(add(plan, problem.down, {"global_scales", "row_major", "f32", DType::f32, {2}}));
  return plan;
}

Result<void> pack_packed_nvfp4_expert(const MoeProblem& problem, const MoePlan& plan,
                                      const ExpertWeights& expert, ExpertSpans to) {
  const Sizes sizes = packed_sizes(problem);
  FEWBIT_TRY(const Source source, source_of(expert, sizes, FirstPart::gate));
  const auto one = [](const float& value) {
    return TensorView{.dtype = DType::f32,
                      .shape = {1},
                      .bytes = std::as_bytes(std::span(&value, 1)),
                      .device = {}};
  };
  W4a16Input input;
  input.source = W4a16Source::modelopt_nvfp4;
  input.block_scale_storage = BlockScaleStorage::plain;
  input.hidden_size = sizes.hidden;
  input.intermediate_size = sizes.intermediate;
  input.gating = sizes.gating;
  input.w13_order = W13Order::gate_up;
  input.activation_dtype = problem.activation_dtype;
  input.w13 = {.codes = source.w13_codes.tensor.view,
               .block_scales = source.w13_scales.tensor.view,
               .global_scales = one(source.globals[0])};
  input.w2 = {.codes = source.w2_codes.tensor.view,
              .block_scales = source.w2_scales.tensor.view,
              .global_scales = one(source.globals[1])};
  std::array<float, 2> globals{};
  const W4a16Output output{
      .w13 = {.tiles = share(plan, to, "w13.words"),
              .scales = share(plan, to, "w13.scales"),
              .global_scales = std::span(globals).first(1)},
      .w2 = {.tiles = share(plan, to, "w2.words"),
             .scales = share(plan, to, "w2.scales"),
             .global_scales = std::span(globals).last(1)},
  };
  FEWBIT_TRY(const DeviceInfo machine, detect_cpu());
  FEWBIT_TRY(const W4a16Report report,
             prepare_w4a16(input, output, machine.isa, serial_executor()));
  FEWBIT_TRY(refuse_lost(problem, "w13", report.w13));
  FEWBIT_TRY(refuse_lost(problem, "w2", report.w2));
  return put(plan, to, "global_scales", std::as_bytes(std::span(globals)));
}

}  // namespace fewbit::foreign
