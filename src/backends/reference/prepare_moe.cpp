// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backends/reference/prepared.hpp"
#include "backends/reference/reference.hpp"

namespace fewbit::reference {
namespace {

constexpr const char* globals_name = "global_scales";  // f32: gate (1 without one), up, down
constexpr std::array matrix_names{"gate", "up", "down"};

struct Part {
  const char* name;
  Tensor QuantizedTensor::*tensor;
};
constexpr std::array parts{
    Part{"codes", &QuantizedTensor::codes},
    Part{"scales", &QuantizedTensor::scales},
    Part{"zero_points", &QuantizedTensor::zero_points},
    Part{"offsets", &QuantizedTensor::offsets},
    Part{"g_idx", &QuantizedTensor::g_idx},
};

const QuantizedTensor* matrix_of(const ExpertWeights& expert, std::size_t i) {
  if (i == 0) return expert.gate ? &*expert.gate : nullptr;
  return i == 1 ? &expert.up : &expert.down;
}

std::string bias_name(std::size_t matrix) { return std::string(matrix_names[matrix]) + ".bias"; }
template <class Weights>  // ExpertWeights, const or not
auto& bias_of(Weights& expert, std::size_t matrix) {
  if (matrix == 0) return expert.gate_bias;
  return matrix == 1 ? expert.up_bias : expert.down_bias;
}

const Scheme& scheme_of(const MoeProblem& problem, std::size_t matrix) {
  return matrix == 2 ? problem.down : problem.gate_up;
}

Result<void> plan_matrix(const QuantizedTensor& tensor, const std::string& name, MoePlan& plan) {
  for (const Part& part : parts) {
    const TensorView& value = (tensor.*part.tensor).view;
    if ((tensor.*part.tensor).empty()) continue;
    // Rows of codes are padded to whole bytes: not every shape says how many there are.
    const auto dense = tensor_bytes(value.dtype, value.shape);
    const bool shaped = dense && *dense == value.bytes.size();
    FEWBIT_TRY(plan.add({.name = name + "." + part.name,
                         .layout = "row_major",
                         .scale_format = std::strcmp(part.name, "scales") == 0
                                             ? std::string(dtype_name(value.dtype))
                                             : std::string(),
                         .source = scheme_text(tensor.scheme),
                         .dtype = shaped ? value.dtype : DType::u8,
                         .shape = shaped ? value.shape : Shape{std::ssize(value.bytes)},
                         .use = BufferUse::verbatim}));
  }
  return {};
}

Error foreign(const PlannedBuffer& buffer, const std::string& where) {
  return Error{ErrorCode::inconsistent,
               "buffer " + buffer.name + " has layout " + buffer.layout + " (" +
                   buffer_use_name(buffer.use) + "), which backend reference does not read",
               where};
}

bool is_bias(const MoeProblem& problem, const PlannedBuffer& buffer) {
  for (std::size_t i = 0; i < matrix_names.size(); ++i) {
    const std::int64_t rows = i == 2 ? problem.hidden_size : problem.intermediate_size;
    if (buffer.name != bias_name(i)) continue;
    return problem.biases && buffer.use == BufferUse::at_open && buffer.dtype == DType::f32 &&
           buffer.shape == Shape{rows};
  }
  return false;
}

Result<QuantizedTensor> open_matrix(const MoeProblem& problem, const MoePlan& plan,
                                    std::size_t matrix, ConstExpertSpans from) {
  QuantizedTensor tensor;
  const bool down = matrix == 2;
  tensor.n = down ? problem.hidden_size : problem.intermediate_size;
  tensor.k = down ? problem.intermediate_size : problem.hidden_size;
  tensor.scheme = scheme_of(problem, matrix);
  for (const Part& part : parts) {
    const std::int64_t index = plan.index(std::string(matrix_names[matrix]) + "." + part.name);
    if (index < 0) continue;
    const PlannedBuffer& buffer = plan.buffers[static_cast<std::size_t>(index)];
    (tensor.*part.tensor).view = {.dtype = buffer.dtype,
                                  .shape = buffer.shape,
                                  .bytes = from[static_cast<std::size_t>(index)],
                                  .device = {}};
  }
  const auto globals = from[static_cast<std::size_t>(plan.index(globals_name))];
  std::memcpy(&tensor.global_scale, globals.data() + matrix * sizeof(float), sizeof(float));
  const auto checked = check_quantized(tensor);
  if (!checked) return Error{checked.error().code, checked.error().message(), problem.where};
  return tensor;
}

}  // namespace

Result<MoePlan> plan_moe(const MoeProblem& problem, const ExpertWeights& first) {
  MoePlan plan{.experts = problem.num_experts, .buffers = {}};
  for (std::size_t i = 0; i < matrix_names.size(); ++i) {
    const QuantizedTensor* tensor = matrix_of(first, i);
    if (tensor != nullptr) FEWBIT_TRY(plan_matrix(*tensor, matrix_names[i], plan));
  }
  FEWBIT_TRY(plan.add({.name = globals_name,
                       .layout = "row_major",
                       .scale_format = "f32",
                       .source = scheme_text(problem.gate_up),
                       .dtype = DType::f32,
                       .shape = {3},
                       .use = BufferUse::at_open}));
  for (std::size_t i = 0; i < matrix_names.size() && problem.biases; ++i) {
    const QuantizedTensor* tensor = matrix_of(first, i);
    if (tensor == nullptr) continue;
    FEWBIT_TRY(plan.add({.name = bias_name(i),
                         .layout = "row_major",
                         .scale_format = "",
                         .source = scheme_text(tensor->scheme),
                         .dtype = DType::f32,
                         .shape = {tensor->n},
                         .use = BufferUse::at_open}));
  }
  return plan;
}

Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to) {
  std::array<float, 3> globals{1.0F, 1.0F, 1.0F};
  for (std::size_t i = 0; i < matrix_names.size(); ++i) {
    const QuantizedTensor* tensor = matrix_of(expert, i);
    if (tensor != nullptr) globals[i] = tensor->global_scale;
    const std::int64_t index = plan.index(bias_name(i));
    if (index < 0) continue;
    const std::span<std::byte> share = to[static_cast<std::size_t>(index)];
    const std::vector<float>& bias = bias_of(expert, i);
    if (!bias.empty() && bias.size() * sizeof(float) != share.size()) {
      return Error{ErrorCode::invalid_argument,
                   std::string(matrix_names[i]) + " bias of " + std::to_string(bias.size()) +
                       " values, expected " + std::to_string(share.size() / sizeof(float)),
                   problem.where};
    }
    std::ranges::fill(share, std::byte{0});
    if (!bias.empty()) std::memcpy(share.data(), bias.data(), share.size());
  }
  std::memcpy(to[static_cast<std::size_t>(plan.index(globals_name))].data(), globals.data(),
              sizeof(globals));
  return {};
}

Result<ExpertWeights> unpack_expert(const MoeProblem& problem, const MoePlan& plan,
                                    ConstExpertSpans from) {
  ExpertWeights expert;
  if (activation_gated(problem.activation.kind)) {
    FEWBIT_TRY(expert.gate, open_matrix(problem, plan, 0, from));
  }
  FEWBIT_TRY(expert.up, open_matrix(problem, plan, 1, from));
  FEWBIT_TRY(expert.down, open_matrix(problem, plan, 2, from));
  for (std::size_t i = 0; i < matrix_names.size(); ++i) {
    const std::int64_t index = plan.index(bias_name(i));
    if (index < 0) continue;
    const std::span<const std::byte> share = from[static_cast<std::size_t>(index)];
    std::vector<float>& bias = bias_of(expert, i);
    bias.resize(share.size() / sizeof(float));
    std::memcpy(bias.data(), share.data(), share.size());
  }
  return expert;
}

Result<void> check_plan(const MoeProblem& problem, const MoePlan& plan) {
  ExpertWeights any;
  any.gate.emplace();
  for (const PlannedBuffer& buffer : plan.buffers) {
    const bool globals = buffer.name == globals_name && buffer.use == BufferUse::at_open &&
                         buffer.dtype == DType::f32 && buffer.expert_bytes == 3 * sizeof(float);
    const bool bias = is_bias(problem, buffer);
    const bool part =
        buffer.use == BufferUse::verbatim && canonical_part(any, buffer.name) != nullptr;
    if (buffer.layout != "row_major" || !(globals || part || bias)) {
      return foreign(buffer, problem.where);
    }
  }
  if (plan.find(globals_name) == nullptr) {
    return Error{ErrorCode::inconsistent, std::string("no buffer ") + globals_name, problem.where};
  }
  return {};
}

Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& plan,
                                              PreparedMemory memory) {
  FEWBIT_TRY(check_plan(problem, plan));
  FEWBIT_TRY(check_memory(plan, memory, problem.where));
  std::vector<ExpertWeights> experts;
  experts.reserve(memory.experts.size());
  for (const auto& shares : memory.experts) {
    FEWBIT_TRY(ExpertWeights expert, unpack_expert(problem, plan, shares));
    experts.push_back(std::move(expert));
  }
  return std::unique_ptr<PreparedMoe>(
      std::make_unique<ReferenceMoe>(problem, experts, std::move(memory)));
}

}  // namespace fewbit::reference
