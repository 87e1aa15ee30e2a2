// SPDX-License-Identifier: Apache-2.0
// Packing on the host, the bytes that the device packs as well (kernels/cuda/pack_f4.cu).
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "backends/cuda_moe/expert_parts.hpp"
#include "backends/cuda_moe/weight_cells.hpp"
#include "canonical/gguf_exact.hpp"

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

void pack_int_cells(const CudaIntForm& form, const CudaIntSource& from, std::span<std::byte> to) {
  const Dims half{.n = from.rows, .k = from.depth};
  const std::int64_t cells = 4 * CudaIntForm::quads(half);
  std::byte* at = to.data();
  for (std::int64_t unit = 0; unit < CudaIntForm::units(half); ++unit) {
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      for (int word = 0; word < form.cell_bytes() / 4; ++word) {
        const std::uint32_t bits = cuda_int_word(from, unit, cell, word);
        std::memcpy(at + form.codes_at(cell) + 4 * word, &bits, sizeof(bits));
      }
      if (cell % form.scale_cells != 0) continue;
      std::byte* const header = at + form.header_at(cell);
      for (int i = 0; i < 32; ++i) {
        const auto scale = cuda_int_of_header(from, from.scales, unit, cell, i, std::uint16_t{0});
        std::memcpy(header + 2 * i, &scale, sizeof(scale));
        if (!form.zeros) continue;
        header[64 + i] =
            std::byte{cuda_int_of_header(from, from.zeros, unit, cell, i, from.past_zero())};
      }
    }
    at += cells / 4 * form.quad_bytes();
  }
}

// False: a code is NaN.
template <class Cells>
bool pack_f8_cells(const CudaF8Source& from, std::span<std::byte> to) {
  const Dims half{.n = from.rows, .k = from.depth};
  std::byte* at = to.data();
  bool nan = false;
  for (std::int64_t unit = 0; unit < Cells::units(half); ++unit) {
    for (std::int64_t cell = 0; cell < Cells::cells(half); ++cell) {
      for (int word = 0; word < 256; ++word) {
        const std::uint32_t codes = cuda_f8_codes(from, unit, cell, word);
        const std::uint32_t bits = cuda_f8_word(codes);
        nan = nan || cuda_f8_nan(codes);
        std::memcpy(at + 4 * word, &bits, sizeof(bits));
      }
      if constexpr (std::is_same_v<Cells, CudaMxF8Cells>) {
        for (int i = 0; i < 32; ++i) {
          at[1024 + i] = std::byte{cuda_mxf8_scale(from, unit, cell, i)};
        }
      } else {
        const float scales[4] = {cuda_f8_scale(from, unit, cell, 0),
                                 cuda_f8_scale(from, unit, cell, 1), 0.0F, 0.0F};
        std::memcpy(at + 1024, scales, sizeof(scales));
      }
      at += Cells::cell_bytes;
    }
  }
  return !nan;
}

Result<void> pack_matrix(const MoeProblem& problem, const ExpertWeights& expert, int matrix,
                         std::span<std::byte> to) {
  const CellFormat format = format_of(problem);
  if (has_int_cells(format.kind)) {
    FEWBIT_TRY(const IntParts parts, int_parts_of(problem, expert, matrix));
    pack_int_cells(format.ints, parts.source, to);
  } else if (format.kind == CellKind::f8 || format.kind == CellKind::mxfp8) {
    FEWBIT_TRY(const F8Parts parts, f8_parts_of(problem, expert, matrix));
    const bool packed = format.kind == CellKind::f8
                            ? pack_f8_cells<CudaF8Cells>(parts.source, to)
                            : pack_f8_cells<CudaMxF8Cells>(parts.source, to);
    if (!packed) return nan_code(problem);
  } else if (format.kind == CellKind::nvfp4) {
    pack_cells<CudaF4Cells<16>>(source_of(problem, expert, matrix), to);
  } else {
    pack_cells<CudaF4Cells<32>>(source_of(problem, expert, matrix), to);
  }
  return {};
}

const char* scale_format_of(const CellFormat& format) {
  switch (format.kind) {
    case CellKind::nvfp4:
      return "s0e5m3";
    case CellKind::mxfp4:
    case CellKind::mxfp8:
      return "f8_e8m0";
    case CellKind::f8:
      return "f32";
    case CellKind::int4:
    case CellKind::int8:
    case CellKind::ternary:
    case CellKind::nf3:
      break;
  }
  return format.f16_scales ? "f16" : "bf16";
}

Result<void> add_packed(MoePlan& plan, const MoeProblem& problem, const char* name,
                        const Scheme& scheme, Dims half) {
  const CellFormat format = format_of(problem);
  return plan.add({.name = name,
                   .layout = layout_name(format),
                   .scale_format = scale_format_of(format),
                   .source = scheme_text(scheme),
                   .dtype = DType::u8,
                   .shape = {packed_bytes(format, half)}});
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
  if (has_row_scales(problem)) {
    FEWBIT_TRY(add_small(plan, problem, "row_scales", DType::f32, bias_count(problem)));
  }
  if (is_ordered(problem.gate_up)) {
    FEWBIT_TRY(add_small(plan, problem, "hidden_order", DType::i32, problem.hidden_size));
  }
  if (!format_of(problem).scaled_sums()) {
    FEWBIT_TRY(add_small(plan, problem, "scale_range", DType::u8, 2));
  }
  return plan;
}

Result<void> check_plan(const MoeProblem& problem, const MoePlan& plan) {
  FEWBIT_TRY(const MoePlan own, plan_moe(problem));
  return check_same_plan(own, plan, problem.where);
}

Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& stored, ExpertSpans to) {
  FEWBIT_TRY(const ExpertWeights expert, gguf_exact(stored));
  const auto span = [&](const char* name) {
    return to[static_cast<std::size_t>(plan.index(name))];
  };
  for (int matrix = 0; matrix < 2; ++matrix) {
    FEWBIT_TRY(pack_matrix(problem, expert, matrix, span(matrix == 0 ? "gate_up" : "down")));
  }
  FEWBIT_TRY(const auto globals, globals_of(expert));
  std::memcpy(span("global_scales").data(), globals.data(), sizeof(globals));
  if (problem.biases) {
    FEWBIT_TRY(const std::vector<float> biases, biases_of(problem, expert));
    std::memcpy(span("biases").data(), biases.data(), biases.size() * sizeof(float));
  }
  if (has_row_scales(problem)) {
    FEWBIT_TRY(const std::vector<float> scales, row_scales_of(expert));
    std::memcpy(span("row_scales").data(), scales.data(), scales.size() * sizeof(float));
  }
  if (is_ordered(problem.gate_up)) {
    FEWBIT_TRY(const std::vector<std::int32_t> order, hidden_order_of(problem, expert));
    std::memcpy(span("hidden_order").data(), order.data(), order.size() * sizeof(std::int32_t));
  }
  if (format_of(problem).scaled_sums()) return {};
  const ScaleRange range = scale_range(expert);
  span("scale_range")[0] = std::byte{range.least};
  span("scale_range")[1] = std::byte{range.most};
  return {};
}

}  // namespace fewbit::cuda
