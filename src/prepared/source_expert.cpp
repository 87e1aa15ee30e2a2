// SPDX-License-Identifier: Apache-2.0
#include "prepared/source_expert.hpp"

#include <utility>

#include "canonical/gguf_exact.hpp"

namespace fewbit {

Result<ExpertWeights> read_source_expert(const PlannedLayer& layer, const Checkpoint& source,
                                         std::int64_t expert, const std::string& where) {
  FEWBIT_TRY(ExpertWeights stored, layer.experts.read(source, expert));
  if (layer.zero_biases) drop_biases(stored);
  auto exact = gguf_exact(std::move(stored));
  if (!exact) return Error{exact.error().code, exact.error().what, where};
  return exact;
}

}  // namespace fewbit
