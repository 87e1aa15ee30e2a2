// SPDX-License-Identifier: Apache-2.0
// Routed experts behind their router.
#pragma once

#include <optional>
#include <vector>

#include "core/carver.hpp"
#include "fewbit/linear.hpp"
#include "fewbit/moe.hpp"
#include "model/blocks.hpp"

namespace fewbit {

struct MoeBlockWeights {
  // f32 output [experts]; none: the experts have a router of their own (MoeLayer::add_router).
  std::optional<LinearLayer> router;
  std::vector<float> bias;  // of selection; or empty
  MoeLayer experts;
};

class MoeBlock final : public FeedForward {
 public:
  MoeBlock(MoeBlockWeights weights, const RouterParams& router);
  Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const override;
  Result<void> run(const Step& step, std::span<const std::byte> x,
                   std::span<std::byte> y) const override;

 private:
  struct Buffers;
  Result<Buffers> carve(Carver& carver, std::int64_t tokens) const;
  Result<void> route_here(const Step& step, const TensorView& hidden, const Buffers& buffers) const;

  MoeBlockWeights weights_;
  RouterParams router_;
};

}  // namespace fewbit
