// SPDX-License-Identifier: Apache-2.0
// The router's scores; route() itself is in fewbit/moe.hpp.
#pragma once

#include <span>

#include "fewbit/result.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// Scores of one token's logits, in double: softmax over all of them, sigmoid, or
// sqrt(log(1 + exp(x))). Both spans have the same size. Logits hold no NaN, no +infinity, and, for
// softmax, at least one finite value.
void router_scores(Score score, std::span<const float> logits, std::span<double> scores);

// What route() asks of its parameters and of a bias. Error invalid_argument, with the numbers.
Result<void> check_router(const RouterParams& params, std::int64_t experts,
                          std::span<const float> bias);

}  // namespace fewbit
