// SPDX-License-Identifier: Apache-2.0
// Layers on tiles and on dot products of bf16 pairs, for their tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/cpu/kernel_table.hpp"
#include "backends/moe_case.hpp"
#include "select/backend.hpp"

namespace fewbit::test {

// With tiles for any number of tokens; usual: software tiles for as many as cpu_amx wants.
// dots: the level avx512 of a CPU whose dot products are fast.
enum class Unit { soft, amx, usual, dots };
const cpu::Kernels& kernels(Unit unit);
const Backend& backend_of(Unit unit);

// Calls of kernels of the unit `usual` and of counted_dots, since it was set to 0.
extern int tile_products;
Lane16TilesOf counted_dots;

struct NamedScheme {
  const char* name;
  Scheme scheme;
};
// All forms of weights that tiles take.
std::vector<NamedScheme> tile_schemes();

// A prepared layer, run with a workspace full of ones.
class TileLayer {
 public:
  TileLayer(Unit unit, const MoeProblem& problem, const MoeWeights& weights)
      : TileLayer(backend_of(unit), problem, weights) {}
  TileLayer(const Backend& backend, const MoeProblem& problem, const MoeWeights& weights);

  std::uint64_t workspace_bytes(std::int64_t tokens) const {
    return *layer_->workspace_bytes(tokens);
  }
  std::vector<float> run(const Call& call, Executor& executor = serial_executor(),
                         std::optional<AmaxTable> amax = std::nullopt) const;

 private:
  MoeProblem problem_;
  std::unique_ptr<PreparedMoe> layer_;
};

}  // namespace fewbit::test
