// SPDX-License-Identifier: Apache-2.0
#include "model/dense_mlp.hpp"

#include <algorithm>
#include <utility>

#include "model/element.hpp"
#include "model/row_tasks.hpp"
#include "moe/activate.hpp"

namespace fewbit {

struct DenseMlp::Buffers {
  std::span<std::byte> gate, up;  // [tokens, intermediate]; the activated rows replace up
  std::span<std::byte> linear;
};

DenseMlp::DenseMlp(DenseMlpWeights weights, const ActivationParams& activation, DType dtype)
    : weights_(std::move(weights)), activation_(activation), dtype_(dtype) {}

Result<DenseMlp::Buffers> DenseMlp::carve(Carver& carver, std::int64_t tokens) const {
  const std::int64_t row = weights_.up.problem().n * element_bytes(dtype_);
  Buffers buffers;
  buffers.gate = carver.take<std::byte>(weights_.gate ? tokens : 0, row);
  buffers.up = carver.take<std::byte>(tokens, row);
  std::uint64_t linear = 0;
  const LinearLayer* gate = weights_.gate ? &*weights_.gate : &weights_.up;
  for (const LinearLayer* layer : {gate, &weights_.up, &weights_.down}) {
    FEWBIT_TRY(const std::uint64_t bytes, layer->workspace_bytes(tokens));
    linear = std::max(linear, bytes);
  }
  buffers.linear = carver.take<std::byte>(static_cast<std::int64_t>(linear));
  if (!carver.bytes()) {
    return Error{ErrorCode::limit, "the workspace of the dense MLP overflows",
                 weights_.up.problem().where};
  }
  return buffers;
}

Result<std::uint64_t> DenseMlp::workspace_bytes(std::int64_t tokens) const {
  Carver measure;
  FEWBIT_TRY(carve(measure, tokens));
  return *measure.bytes();
}

Result<void> DenseMlp::run(const Step& step, std::span<const std::byte> x,
                           std::span<std::byte> y) const {
  Carver carver(step.workspace);
  FEWBIT_TRY(const Buffers buffers, carve(carver, step.tokens));
  const auto project = [&](const LinearLayer& layer, std::span<const std::byte> from,
                           std::span<std::byte> to) {
    return layer.run(step.tokens, activation_view(dtype_, step.tokens, layer.problem().k, from), to,
                     buffers.linear, *step.executor);
  };
  if (weights_.gate) FEWBIT_TRY(project(*weights_.gate, x, buffers.gate));
  FEWBIT_TRY(project(weights_.up, x, buffers.up));
  const ActivationConstants constants = activation_constants(activation_);
  with_element_type(dtype_, [&]<class T>(T) {
    const auto gate = elements<T>(buffers.gate);
    const auto up = elements<T>(buffers.up);
    const std::size_t width = to_size(weights_.up.problem().n);
    for_each_row(*step.executor, step.tokens, [&](std::int64_t row) {
      for (std::size_t i = to_size(row) * width; i < (to_size(row) + 1) * width; ++i) {
        const float g = gate.empty() ? 0.0F : element_value(gate[i]);
        up[i] = round_to_element<T>(activate(activation_.kind, g, element_value(up[i]), constants));
      }
    });
  });
  return project(weights_.down, buffers.up, y);
}

}  // namespace fewbit
