// SPDX-License-Identifier: Apache-2.0
// Random MoE layers and calls for tests of backends, with guards around everything that is written.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backends/reference/moe_reference.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/moe.hpp"

namespace fewbit::test {

// A tensor that owns a copy of values; shape as given, dtype's bits must fit T's bytes.
template <class T>
Tensor owned_tensor(DType dtype, const Shape& shape, std::vector<T> values) {
  auto memory = std::make_shared<const std::vector<T>>(std::move(values));
  const auto bytes = std::as_bytes(std::span(*memory));
  return {.view = {.dtype = dtype, .shape = shape, .bytes = bytes, .device = {}},
          .owner = std::move(memory)};
}

// A plain f32 matrix [n, k] from its values.
QuantizedTensor f32_matrix(std::int64_t n, std::int64_t k, std::vector<float> values);

struct LayerSpec {
  std::int64_t experts = 4;
  std::int64_t hidden_size = 32;
  std::int64_t intermediate_size = 48;
  DType weight = DType::bf16;  // f32, f16, bf16, or f4_e2m1 for NVFP4
  ActivationParams activation;
  std::uint32_t seed = 1;
  std::optional<Scheme> scheme = std::nullopt;  // instead of weight
  bool biases = false;
};
LayerSpec spec_of(const Scheme& scheme, std::int64_t hidden_size, std::int64_t intermediate_size,
                  std::int64_t experts = 4);
// A canonical scheme by its parts.
Scheme scaled_scheme(DType weight, DType scale, Granularity granularity);
// Random codes of every value but NaN, scales between 1/64 and 1, zero points, columns of every
// group in turn (act-order: one order for all matrices of a width) and a global scale.
QuantizedTensor random_scaled(const Scheme& scheme, std::int64_t n, std::int64_t k,
                              std::mt19937& random);
// Random weights; NVFP4 uses every code, and gate, up and down have different global scales.
MoeWeights random_weights(const LayerSpec& spec);

// A problem over these weights for `top_k` and up to `max_tokens`.
MoeProblem problem_of(const LayerSpec& spec, int top_k, std::int64_t max_tokens);

struct Call {
  std::int64_t tokens = 0;
  std::vector<float> hidden;  // exact values of the activation dtype
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<std::int32_t> expert_map;
};
// Ids are drawn over the experts, duplicates inside a token included.
Call random_call(const MoeProblem& problem, std::int64_t tokens, std::uint32_t seed);

// A CPU with the generic code only.
DeviceInfo generic_cpu();
// Prepares the layer on a forced backend.
Result<MoeLayer> prepare(const std::string& backend, const MoeProblem& problem,
                         const MoeWeights& weights, const DeviceInfo& device,
                         Executor& executor = serial_executor());

// The call for a layer, still without output and workspace; it borrows from `call` and `hidden`,
// which is in the problem's type of activations.
MoeArgs args_of(const MoeProblem& problem, const Call& call, std::span<const std::byte> hidden);
// Runs the layer with a workspace full of NaN and guards around output and workspace; fails the
// test when a guard was touched. Returns the bytes of the output.
Result<std::vector<std::byte>> run(const MoeLayer& layer, const Call& call,
                                   Executor& executor = serial_executor(),
                                   std::optional<AmaxTable> amax = std::nullopt);
std::vector<float> to_f32(DType dtype, const std::vector<std::byte>& bytes);

// The call for moe_reference; it borrows from `call`.
MoeReferenceInput input_of(const Call& call);
// The same call through the formulas, in double without rounding.
MoeReferenceResult expected(const MoeProblem& problem, const MoeWeights& weights, const Call& call);

}  // namespace fewbit::test
