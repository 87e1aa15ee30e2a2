// SPDX-License-Identifier: Apache-2.0
// Step 5, prepare, in the memory of the weights themselves.
#pragma once

#include <cstddef>
#include <span>

#include "fewbit/moe.hpp"
#include "fewbit/quantized.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

// As MoeLayer::prepare, but every packed buffer takes the place of the canonical part that it is
// made from ("up.codes"), expert by expert: the memory of the weights becomes that of the layer,
// and the weights mean nothing any more. Takes one expert's share beside it, and a few numbers an
// expert; for that it packs one expert at a time.
//
// `memory`: the caller's, holds those parts of all experts, each at the alignment of its buffer (64
// bytes), and outlives the layer.
//
// Nothing is written before everything was checked. Errors: as MoeLayer::prepare; unsupported (a
// buffer of another size than the part, or one that is made of several: both sizes);
// invalid_argument (a part that is not in the memory, is not aligned, or shares bytes with
// another). An expert that can't be packed (none of fewbit's own backends has one) leaves those
// before it replaced.
Result<MoeLayer> prepare_in_place(const Selection& selection, const MoeProblem& problem,
                                  const MoeWeights& weights, std::span<std::byte> memory,
                                  const DeviceInfo& device);

}  // namespace fewbit
