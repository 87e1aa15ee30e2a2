// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/prepared.hpp"
#include "canonical/column_order.hpp"
#include "canonical/gguf_exact.hpp"

namespace fewbit::cpu {
namespace {

constexpr const char* globals_name = "global_scales";  // f32: gate (1 without one), up, down
// i32: column of the matrices at each place, with act-order.
constexpr const char* hidden_order_name = "hidden_order";        // of gate and up
constexpr const char* activated_order_name = "activated_order";  // of down

struct MatrixPlace {
  const char* name;
  Dims dims;
  const Scheme& scheme;
  const char* order;
  std::size_t index;  // of its global scale

  std::string part(const char* suffix) const { return std::string(name) + "." + suffix; }
};

// Gate (where there is one), up, down: the order of the plan.
std::vector<MatrixPlace> matrices(const MoeProblem& problem) {
  const Dims in{.n = problem.intermediate_size, .k = problem.hidden_size};
  const Dims out{.n = problem.hidden_size, .k = problem.intermediate_size};
  std::vector<MatrixPlace> list;
  if (activation_gated(problem.activation.kind)) {
    list.push_back({"gate", in, problem.gate_up, hidden_order_name, 0});
  }
  list.push_back({"up", in, problem.gate_up, hidden_order_name, 1});
  list.push_back({"down", out, problem.down, activated_order_name, 2});
  return list;
}

Result<void> plan_matrix(const MatrixPlace& matrix, const std::string& where, MoePlan& plan) {
  const std::string source = scheme_text(matrix.scheme);
  const auto form = form_of(matrix.scheme);
  if (!form) {
    return plan.add({.name = matrix.part("codes"),
                     .layout = "row_major",
                     .scale_format = "",
                     .source = source,
                     .dtype = matrix.scheme.weight,
                     .shape = {matrix.dims.n, matrix.dims.k},
                     .use = BufferUse::verbatim});
  }
  const auto sizes = packed_sizes(*form, matrix.dims);
  if (!sizes) {
    return Error{ErrorCode::limit,
                 fmt::format("packed weights overflow 2^63 bytes at a matrix [{}, {}]",
                             matrix.dims.n, matrix.dims.k),
                 where};
  }
  const std::string layout = layout_name(matrix.scheme);
  const bool blocks = form->scale == Lane16Scale::f32_blocks;
  FEWBIT_TRY(plan.add({.name = matrix.part("codes"),
                       .layout = layout,
                       .scale_format = "",
                       .source = source,
                       .dtype = DType::u8,
                       .shape = {sizes->codes}}));
  if (form->in_blocks()) return {};
  FEWBIT_TRY(
      plan.add({.name = matrix.part("scales"),
                .layout = layout + (blocks ? "_block_scales" : "_scales"),
                .scale_format = std::string(dtype_name(blocks ? DType::f32 : form->scale_dtype)),
                .source = source,
                .dtype = DType::u8,
                .shape = {sizes->scales}}));
  if (!form->zeros) return {};
  return plan.add({.name = matrix.part("zero_points"),
                   .layout = layout + "_zero_points",
                   .scale_format = "",
                   .source = source,
                   .dtype = DType::u8,
                   .shape = {sizes->zeros}});
}

// A vector that open_moe takes a copy of.
Result<void> plan_vector(std::string name, const char* scale_format, DType dtype, std::int64_t size,
                         const MoeProblem& problem, MoePlan& plan) {
  return plan.add({.name = std::move(name),
                   .layout = "row_major",
                   .scale_format = scale_format,
                   .source = scheme_text(problem.gate_up),
                   .dtype = dtype,
                   .shape = {size},
                   .use = BufferUse::at_open});
}

const QuantizedTensor& tensor_of(const ExpertWeights& expert, const MatrixPlace& matrix) {
  if (matrix.index == 0) return *expert.gate;
  return matrix.index == 1 ? expert.up : expert.down;
}
template <class Weights>  // ExpertWeights or Expert, const or not
auto& bias_of(Weights& expert, const MatrixPlace& matrix) {
  if (matrix.index == 0) return expert.gate_bias;
  return matrix.index == 1 ? expert.up_bias : expert.down_bias;
}

// The share of a buffer; empty when the plan has none of that name.
template <class Spans>
auto share_of(const MoePlan& plan, const std::string& name, Spans spans) {
  const std::int64_t index = plan.index(name);
  return index < 0 ? std::remove_cvref_t<decltype(spans[0])>{}
                   : spans[static_cast<std::size_t>(index)];
}
template <class Parts, class Spans>
Parts parts_of(const MoePlan& plan, const MatrixPlace& matrix, Spans spans) {
  return {.codes = share_of(plan, matrix.part("codes"), spans),
          .scales = share_of(plan, matrix.part("scales"), spans),
          .zeros = share_of(plan, matrix.part("zero_points"), spans)};
}

template <class T>
std::vector<T> read_vector(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template <class T>
void write_vector(const std::vector<T>& values, std::span<std::byte> to) {
  std::ranges::fill(to, std::byte{0});
  if (!values.empty()) std::memcpy(to.data(), values.data(), values.size() * sizeof(T));
}

// From a prepared file, which may be damaged. Empty without act-order.
Result<std::vector<std::int32_t>> read_order(const MoePlan& plan, const char* name,
                                             ConstExpertSpans from, const std::string& where) {
  auto order = read_vector<std::int32_t>(share_of(plan, name, from));
  FEWBIT_TRY(check_order(order, name, where));
  return order;
}

Result<Expert> open_expert(const Kernels& kernels, const MoeProblem& problem, const MoePlan& plan,
                           ConstExpertSpans from) {
  const auto globals = read_vector<float>(share_of(plan, globals_name, from));
  Expert expert;
  for (const MatrixPlace& matrix : matrices(problem)) {
    const Matrix opened =
        Matrix::open(kernels, matrix.scheme, matrix.dims,
                     parts_of<ConstPackedSpans>(plan, matrix, from), globals[matrix.index]);
    if (matrix.index == 0) {
      expert.gate = opened;
    } else {
      (matrix.index == 1 ? expert.up : expert.down) = opened;
    }
    std::vector<float>& bias = bias_of(expert, matrix);
    bias = read_vector<float>(share_of(plan, matrix.part("bias"), from));
    if (!bias.empty()) bias.resize(static_cast<std::size_t>(opened.blocks() * 16));
  }
  FEWBIT_TRY(expert.hidden_order, read_order(plan, hidden_order_name, from, problem.where));
  FEWBIT_TRY(const std::vector<std::int32_t> order,
             read_order(plan, activated_order_name, from, problem.where));
  expert.activated_places = inverse_order(order);
  return expert;
}

// The plan's order for the columns of this matrix: of gate and up the first one's, which the other
// must have too.
Result<std::vector<std::int32_t>> pack_order(const MoePlan& plan, const MatrixPlace& matrix,
                                             const QuantizedTensor& tensor, bool first,
                                             ExpertSpans to) {
  FEWBIT_TRY(std::vector<std::int32_t> order, column_order(tensor));
  const std::span<std::byte> share = share_of(plan, matrix.order, to);
  if (first) {
    write_vector(order, share);
  } else if (order != read_vector<std::int32_t>(share)) {
    return Error{ErrorCode::invalid_argument, "gate and up have different act-orders", ""};
  }
  return order;
}

Result<void> pack_one(const MoePlan& plan, const MatrixPlace& matrix, const QuantizedTensor& stored,
                      bool first, ExpertSpans to) {
  const auto form = form_of(matrix.scheme);
  if (!form) return {};
  FEWBIT_TRY(const QuantizedTensor tensor, gguf_exact(stored));
  std::vector<std::int32_t> order;
  if (form->ordered) {
    FEWBIT_TRY(order, pack_order(plan, matrix, tensor, first, to));
  }
  return pack_matrix(*form, tensor, order, parts_of<PackedSpans>(plan, matrix, to));
}

Result<QuantizedTensor> unpack_one(const MoePlan& plan, const MatrixPlace& matrix,
                                   const std::string& where, float global_scale,
                                   ConstExpertSpans from) {
  const auto parts = parts_of<ConstPackedSpans>(plan, matrix, from);
  if (form_of(matrix.scheme)) {
    FEWBIT_TRY(const auto order, read_order(plan, matrix.order, from, where));
    return unpack_matrix(matrix.scheme, matrix.dims, parts, order, global_scale);
  }
  const Tensor values{.view = {.dtype = matrix.scheme.weight,
                               .shape = {matrix.dims.n, matrix.dims.k},
                               .bytes = parts.codes,
                               .device = {}},
                      .owner = nullptr};
  FEWBIT_TRY(QuantizedTensor tensor,
             make_plain(matrix.dims.n, matrix.dims.k, values, global_scale));
  tensor.scheme = matrix.scheme;
  return tensor;
}

}  // namespace

Result<MoePlan> plan_moe(const MoeProblem& problem) {
  MoePlan plan{.experts = problem.num_experts, .buffers = {}};
  for (const MatrixPlace& matrix : matrices(problem)) {
    FEWBIT_TRY(plan_matrix(matrix, problem.where, plan));
  }
  FEWBIT_TRY(plan_vector(globals_name, "f32", DType::f32, 3, problem, plan));
  for (const MatrixPlace& matrix : matrices(problem)) {
    if (problem.biases) {
      FEWBIT_TRY(plan_vector(matrix.part("bias"), "", DType::f32, matrix.dims.n, problem, plan));
    }
    const auto form = form_of(matrix.scheme);
    if (form && form->ordered && plan.find(matrix.order) == nullptr) {
      FEWBIT_TRY(plan_vector(matrix.order, "", DType::i32, matrix.dims.k, problem, plan));
    }
  }
  return plan;
}

Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to) {
  std::vector<float> globals{1.0F, 1.0F, 1.0F};
  const std::vector<MatrixPlace> places = matrices(problem);
  for (const MatrixPlace& matrix : places) {
    const QuantizedTensor& tensor = tensor_of(expert, matrix);
    globals[matrix.index] = tensor.global_scale;
    const bool first = &matrix == places.data() || matrix.index == 2;
    if (const auto packed = pack_one(plan, matrix, tensor, first, to); !packed) {
      return Error{packed.error().code, fmt::format("{}: {}", matrix.name, packed.error().what),
                   problem.where};
    }
    if (!problem.biases) continue;
    const std::vector<float>& bias = bias_of(expert, matrix);
    if (!bias.empty() && std::ssize(bias) != matrix.dims.n) {
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("{} bias of {} values, expected {}", matrix.name, bias.size(), matrix.dims.n),
          problem.where};
    }
    write_vector(bias, share_of(plan, matrix.part("bias"), to));
  }
  write_vector(globals, share_of(plan, globals_name, to));
  return {};
}

Result<ExpertWeights> unpack_expert(const MoeProblem& problem, const MoePlan& plan,
                                    ConstExpertSpans from) {
  const auto globals = read_vector<float>(share_of(plan, globals_name, from));
  ExpertWeights expert;
  for (const MatrixPlace& matrix : matrices(problem)) {
    FEWBIT_TRY(QuantizedTensor tensor,
               unpack_one(plan, matrix, problem.where, globals[matrix.index], from));
    bias_of(expert, matrix) = read_vector<float>(share_of(plan, matrix.part("bias"), from));
    if (matrix.index == 0) {
      expert.gate = std::move(tensor);
    } else {
      (matrix.index == 1 ? expert.up : expert.down) = std::move(tensor);
    }
  }
  return expert;
}

Result<void> check_plan(const MoeProblem& problem, const MoePlan& plan) {
  FEWBIT_TRY(const MoePlan own, plan_moe(problem));
  return check_same_plan(own, plan, problem.where);
}

Result<std::unique_ptr<PreparedMoe>> open_moe(const Kernels& kernels, const MoeProblem& problem,
                                              const MoePlan& plan, PreparedMemory memory) {
  FEWBIT_TRY(check_plan(problem, plan));
  FEWBIT_TRY(check_memory(plan, memory, problem.where));
  std::vector<Expert> experts;
  experts.reserve(memory.experts.size());
  for (const auto& shares : memory.experts) {
    FEWBIT_TRY(Expert expert, open_expert(kernels, problem, plan, shares));
    experts.push_back(std::move(expert));
  }
  PreparedInfo info{.backend = kernels.backend,
                    .layout = layout_name(problem.gate_up),
                    .owned_bytes = memory.owned_bytes,
                    .mapped_bytes = memory.mapped_bytes};
  if (info.layout != layout_name(problem.down)) {
    info.layout += fmt::format(", {}", layout_name(problem.down));
  }
  return std::unique_ptr<PreparedMoe>(std::make_unique<Moe>(problem, kernels, std::move(experts),
                                                            std::move(memory), std::move(info)));
}

}  // namespace fewbit::cpu
