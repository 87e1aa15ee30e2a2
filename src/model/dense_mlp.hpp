// SPDX-License-Identifier: Apache-2.0
// Dense feed-forward: down(activation(gate(x), up(x))).
#pragma once

#include <optional>

#include "core/carver.hpp"
#include "fewbit/linear.hpp"
#include "fewbit/scheme.hpp"
#include "model/blocks.hpp"

namespace fewbit {

struct DenseMlpWeights {
  std::optional<LinearLayer> gate;  // absent when the activation has none
  LinearLayer up, down;
};

class DenseMlp final : public FeedForward {
 public:
  DenseMlp(DenseMlpWeights weights, const ActivationParams& activation, DType dtype);
  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const Step& step, std::span<const std::byte> x,
                   std::span<std::byte> y) const override;

 private:
  struct Buffers;
  Result<Buffers> carve(Carver& carver, std::int64_t tokens) const;

  DenseMlpWeights weights_;
  ActivationParams activation_;
  DType dtype_;
};

}  // namespace fewbit
