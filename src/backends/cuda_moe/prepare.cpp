// SPDX-License-Identifier: Apache-2.0
// Packing on the host, the bytes that the device packs as well (kernels/cuda/pack_f4.cu).
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/cuda_moe/expert_parts.hpp"
#include "layout/cuda_f4_pack.hpp"

namespace fewbit::cuda {
namespace {

template <class Layout>
void pack_cells(const CudaF4Source& from, std::span<std::byte> to) {
  const Dims half{.n = from.rows, .k = from.depth};
  std::byte* at = to.data();
  for (std::int64_t unit = 0; unit < Layout::units(half); ++unit) {
    for (std::int64_t cell = 0; cell < Layout::cells(half); ++cell, at += Layout::cell_bytes) {
      for (int word = 0; word < 128; ++word) {
        const std::uint32_t bits = cuda_f4_word<Layout>(from, unit, cell, word);
        std::memcpy(at + 4 * word, &bits, sizeof(bits));
      }
      for (int byte = 0; byte < Layout::scale_bytes; ++byte) {
        at[512 + byte] = std::byte{cuda_f4_scale<Layout>(from, unit, cell, byte)};
      }
    }
  }
}

Result<void> add_packed(MoePlan& plan, const MoeProblem& problem, const char* name,
                        const Scheme& scheme, Dims half) {
  const bool e4m3 = format_of(problem) == F4Format::e4m3_k16;
  const std::int64_t bytes = e4m3 ? CudaF4Cells<16>::bytes(half) : CudaF4Cells<32>::bytes(half);
  return plan.add({.name = name,
                   .layout = "cuda_f4_cells",
                   .scale_format = e4m3 ? "s0e5m3" : "f8_e8m0",
                   .source = scheme_text(scheme),
                   .dtype = DType::u8,
                   .shape = {bytes}});
}

Result<void> add_small(MoePlan& plan, const MoeProblem& problem, const char* name, DType dtype,
                       std::int64_t size) {
  return plan.add({.name = name,
                   .layout = "row_major",
                   .scale_format = dtype == DType::f32 ? "f32" : "",
                   .source = scheme_text(problem.gate_up),
                   .dtype = dtype,
                   .shape = {size},
                   .use = BufferUse::at_open});
}

}  // namespace

Result<MoePlan> plan_moe(const MoeProblem& problem) {
  MoePlan plan{.experts = problem.num_experts, .buffers = {}};
  FEWBIT_TRY(add_packed(plan, problem, "gate_up", problem.gate_up, half1(problem)));
  FEWBIT_TRY(add_packed(plan, problem, "down", problem.down, half2(problem)));
  FEWBIT_TRY(add_small(plan, problem, "global_scales", DType::f32, 3));
  if (problem.biases) {
    FEWBIT_TRY(add_small(plan, problem, "biases", DType::f32, bias_count(problem)));
  }
  FEWBIT_TRY(add_small(plan, problem, "scale_range", DType::u8, 2));
  return plan;
}

Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to) {
  const auto span = [&](const char* name) {
    return to[static_cast<std::size_t>(plan.index(name))];
  };
  for (int matrix = 0; matrix < 2; ++matrix) {
    const CudaF4Source from = source_of(problem, expert, matrix);
    const auto target = span(matrix == 0 ? "gate_up" : "down");
    if (format_of(problem) == F4Format::e4m3_k16) {
      pack_cells<CudaF4Cells<16>>(from, target);
    } else {
      pack_cells<CudaF4Cells<32>>(from, target);
    }
  }
  const std::array<float, 3> globals = globals_of(expert);
  std::memcpy(span("global_scales").data(), globals.data(), sizeof(globals));
  if (problem.biases) {
    FEWBIT_TRY(const std::vector<float> biases, biases_of(problem, expert));
    std::memcpy(span("biases").data(), biases.data(), biases.size() * sizeof(float));
  }
  const ScaleRange range = scale_range(expert);
  span("scale_range")[0] = std::byte{range.least};
  span("scale_range")[1] = std::byte{range.most};
  return {};
}

}  // namespace fewbit::cuda
