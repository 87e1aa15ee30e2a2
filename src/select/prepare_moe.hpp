// SPDX-License-Identifier: Apache-2.0
// Preparation of a layer in memory: plan, pack every expert, open.
#pragma once

#include <memory>

#include "fewbit/executor.hpp"
#include "fewbit/quantized.hpp"
#include "fewbit/selection.hpp"
#include "select/backend.hpp"

namespace fewbit {

// Packs the experts into one allocation; verbatim buffers are read where they lie, their owners
// kept. The weights were checked against the problem. Errors: those of the backend's steps; limit
// (memory can't be had); unsupported (prepared for another engine).
Result<std::unique_ptr<PreparedMoe>> prepare_moe(const Backend& backend, const MoeProblem& problem,
                                                 const MoeWeights& weights, Executor& executor);

// The bytes of a verbatim buffer. Error invalid_argument: the expert has no such part, or of
// another dtype or size (both are named).
Result<Tensor> verbatim_share(const PlannedBuffer& buffer, const ExpertWeights& expert,
                              const std::string& where);

}  // namespace fewbit
