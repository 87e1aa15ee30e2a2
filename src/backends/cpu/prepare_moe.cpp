// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/prepared.hpp"
#include "layout/cpu_f4_lane16.hpp"
#include "layout/pack.hpp"

namespace fewbit::cpu {
namespace {

constexpr const char* globals_name = "global_scales";  // f32: gate (1 without one), up, down

struct MatrixPlace {
  const char* name;
  Dims dims;
  const Scheme& scheme;
};

// Gate (where there is one), up, down: the order of the plan.
std::vector<MatrixPlace> matrices(const MoeProblem& problem) {
  const Dims in{.n = problem.intermediate_size, .k = problem.hidden_size};
  const Dims out{.n = problem.hidden_size, .k = problem.intermediate_size};
  std::vector<MatrixPlace> list;
  if (activation_gated(problem.activation.kind)) list.push_back({"gate", in, problem.gate_up});
  list.push_back({"up", in, problem.gate_up});
  list.push_back({"down", out, problem.down});
  return list;
}

Result<void> plan_matrix(const MatrixPlace& matrix, const std::string& where, MoePlan& plan) {
  const std::string name = matrix.name;
  const std::string source = scheme_text(matrix.scheme);
  if (!is_f4(matrix.scheme)) {
    return plan.add({.name = name + ".codes",
                     .layout = "row_major",
                     .scale_format = "",
                     .source = source,
                     .dtype = matrix.scheme.weight,
                     .shape = {matrix.dims.n, matrix.dims.k},
                     .use = BufferUse::verbatim});
  }
  const auto sizes = packed_sizes(matrix.dims);
  if (!sizes) {
    return Error{ErrorCode::limit,
                 fmt::format("packed weights overflow 2^63 bytes at a matrix [{}, {}]",
                             matrix.dims.n, matrix.dims.k),
                 where};
  }
  FEWBIT_TRY(plan.add({.name = name + ".codes",
                       .layout = "cpu_f4_lane16",
                       .scale_format = "",
                       .source = source,
                       .dtype = DType::u8,
                       .shape = {sizes->codes}}));
  return plan.add({.name = name + ".scales",
                   .layout = "cpu_f4_lane16_scales",
                   .scale_format = "f8_e4m3",
                   .source = source,
                   .dtype = DType::u8,
                   .shape = {sizes->scales}});
}

const QuantizedTensor& tensor_of(const ExpertWeights& expert, std::string_view name) {
  if (name == "gate") return *expert.gate;
  return name == "up" ? expert.up : expert.down;
}

std::size_t at(const MoePlan& plan, const std::string& name) {
  return static_cast<std::size_t>(plan.index(name));
}

// The places of a matrix's buffers in the plan.
struct Places {
  std::size_t codes = 0;
  std::size_t scales = 0;
};
Places places_of(const MoePlan& plan, const MatrixPlace& matrix) {
  const std::string name = matrix.name;
  return {.codes = at(plan, name + ".codes"),
          .scales = is_f4(matrix.scheme) ? at(plan, name + ".scales") : 0};
}

std::array<float, 3> globals_of(const MoePlan& plan, ConstExpertSpans from) {
  std::array<float, 3> globals{};
  std::memcpy(globals.data(), from[at(plan, globals_name)].data(), sizeof(globals));
  return globals;
}
std::size_t global_index(std::string_view name) {
  if (name == "gate") return 0;
  return name == "up" ? 1 : 2;
}

Expert open_expert(const Kernels& kernels, const MoeProblem& problem, const MoePlan& plan,
                   ConstExpertSpans from) {
  const std::array<float, 3> globals = globals_of(plan, from);
  Expert expert;
  for (const MatrixPlace& matrix : matrices(problem)) {
    const Places places = places_of(plan, matrix);
    const std::string_view name = matrix.name;
    const Matrix opened = Matrix::open(
        kernels, matrix.scheme, matrix.dims,
        {.codes = from[places.codes],
         .scales = is_f4(matrix.scheme) ? from[places.scales] : std::span<const std::byte>{},
         .global_scale = globals[global_index(name)]});
    if (name == "gate") {
      expert.gate = opened;
    } else {
      (name == "up" ? expert.up : expert.down) = opened;
    }
  }
  return expert;
}

Result<QuantizedTensor> unpack_f4(const MatrixPlace& matrix, std::span<const std::byte> codes,
                                  std::span<const std::byte> scales, float global_scale) {
  const std::int64_t n = matrix.dims.n;
  const std::int64_t k = matrix.dims.k;
  FEWBIT_TRY(OwnedTensor to_codes, allocate_tensor(DType::f4_e2m1, {n, k}));
  FEWBIT_TRY(OwnedTensor to_scales, allocate_tensor(DType::f8_e4m3, {n, k / 16}));
  unpack<CpuF4Lane16>(matrix.dims, codes,
                      [&](std::int64_t row, std::int64_t column, std::uint64_t code) {
                        const auto byte = static_cast<std::size_t>((row * k + column) / 2);
                        to_codes.bytes[byte] |= static_cast<std::byte>(code << (column % 2 * 4));
                      });
  unpack<CpuF4Lane16Scales>({.n = n, .k = k / 16}, scales,
                            [&](std::int64_t row, std::int64_t group, std::uint64_t code) {
                              to_scales.bytes[static_cast<std::size_t>(row * (k / 16) + group)] =
                                  static_cast<std::byte>(code);
                            });
  return make_nvfp4(n, k, std::move(to_codes.tensor), std::move(to_scales.tensor), global_scale);
}

}  // namespace

Result<MoePlan> plan_moe(const MoeProblem& problem) {
  MoePlan plan{.experts = problem.num_experts, .buffers = {}};
  for (const MatrixPlace& matrix : matrices(problem)) {
    FEWBIT_TRY(plan_matrix(matrix, problem.where, plan));
  }
  FEWBIT_TRY(plan.add({.name = globals_name,
                       .layout = "row_major",
                       .scale_format = "f32",
                       .source = scheme_text(problem.gate_up),
                       .dtype = DType::f32,
                       .shape = {3},
                       .use = BufferUse::at_open}));
  return plan;
}

Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to) {
  std::array<float, 3> globals{1.0F, 1.0F, 1.0F};
  for (const MatrixPlace& matrix : matrices(problem)) {
    const QuantizedTensor& tensor = tensor_of(expert, matrix.name);
    globals[global_index(matrix.name)] = tensor.global_scale;
    if (!is_f4(matrix.scheme)) continue;
    const Places places = places_of(plan, matrix);
    pack_matrix(tensor, to[places.codes], to[places.scales]);
  }
  std::memcpy(to[at(plan, globals_name)].data(), globals.data(), sizeof(globals));
  return {};
}

Result<ExpertWeights> unpack_expert(const MoeProblem& problem, const MoePlan& plan,
                                    ConstExpertSpans from) {
  const std::array<float, 3> globals = globals_of(plan, from);
  ExpertWeights expert;
  for (const MatrixPlace& matrix : matrices(problem)) {
    const Places places = places_of(plan, matrix);
    const std::string_view name = matrix.name;
    const float global = globals[global_index(name)];
    QuantizedTensor tensor;
    if (is_f4(matrix.scheme)) {
      FEWBIT_TRY(tensor, unpack_f4(matrix, from[places.codes], from[places.scales], global));
    } else {
      const Tensor values{.view = {.dtype = matrix.scheme.weight,
                                   .shape = {matrix.dims.n, matrix.dims.k},
                                   .bytes = from[places.codes],
                                   .device = {}},
                          .owner = nullptr};
      FEWBIT_TRY(tensor, make_plain(matrix.dims.n, matrix.dims.k, values, global));
    }
    tensor.scheme = matrix.scheme;
    if (name == "gate") {
      expert.gate = std::move(tensor);
    } else {
      (name == "up" ? expert.up : expert.down) = std::move(tensor);
    }
  }
  return expert;
}

Result<std::unique_ptr<PreparedMoe>> open_moe(IsaLevel level, const MoeProblem& problem,
                                              const MoePlan& plan, PreparedMemory memory) {
  FEWBIT_TRY(const MoePlan own, plan_moe(problem));
  FEWBIT_TRY(check_same_plan(own, plan, problem.where));
  FEWBIT_TRY(check_memory(plan, memory, problem.where));
  const Kernels& kernels = kernels_of(level);
  std::vector<Expert> experts;
  experts.reserve(memory.experts.size());
  for (const auto& shares : memory.experts) {
    experts.push_back(open_expert(kernels, problem, plan, shares));
  }
  PreparedInfo info{.backend = kernels.backend,
                    .layout = layout_name(problem.gate_up),
                    .owned_bytes = memory.owned_bytes,
                    .mapped_bytes = memory.mapped_bytes};
  if (info.layout != layout_name(problem.down)) {
    info.layout += fmt::format(", {}", layout_name(problem.down));
  }
  return std::unique_ptr<PreparedMoe>(
      std::make_unique<Moe>(problem, std::move(experts), std::move(memory), std::move(info)));
}

}  // namespace fewbit::cpu
