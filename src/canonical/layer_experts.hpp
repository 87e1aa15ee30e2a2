// SPDX-License-Identifier: Apache-2.0
// The routed experts of a layer, one at a time: what gather_moe reads all of.
#pragma once

#include <cstdint>
#include <vector>

#include "fewbit/quantized.hpp"

namespace fewbit {

class LayerExperts {
 public:
  // Of one expert; fused ones are shared by all. They belong to the Identified.
  struct Modules {
    const Module* gate = nullptr;
    const Module* up = nullptr;
    const Module* down = nullptr;
    const Module* gate_up = nullptr;
  };

  // Errors: not_found (no routed experts), inconsistent (some are missing: lists them), limit.
  static Result<LayerExperts> find(const Identified& identified, int layer);

  std::int64_t count() const { return count_; }
  const Modules& modules(std::int64_t expert) const;
  // Whether its modules hold the other experts too.
  bool fused() const { return slices_; }
  // Errors: as canonicalize.
  Result<ExpertWeights> read(const Checkpoint& checkpoint, std::int64_t expert) const;
  // Brings the pages of the expert's tensors into this process's memory at once: what a packer
  // fetches ahead of a page that is not there is lost.
  void map_pages(const Checkpoint& checkpoint, std::int64_t expert) const;
  // Lets these pages go, the other one if the codes of `weights`, read from them, are a copy.
  void release(const Checkpoint& checkpoint, std::int64_t expert) const;
  void release_copied(const Checkpoint& checkpoint, std::int64_t expert,
                      const ExpertWeights& weights) const;
  // Whether all biases that there are are zero: exporters write them beside every matrix, or beside
  // some, and then there are none. Reads biases only. Error inconsistent: some experts have others
  // and some have none (names one of each); else as canonicalize.
  Result<bool> has_zero_biases(const Checkpoint& checkpoint) const;

 private:
  std::vector<Modules> experts_;  // empty: fused
  Modules fused_;
  bool slices_ = false;
  std::int64_t count_ = 0;
};

void drop_biases(ExpertWeights& expert);

}  // namespace fewbit
