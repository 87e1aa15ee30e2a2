// SPDX-License-Identifier: Apache-2.0
// Which backends read prepared experts on a device, by the manifest and rules alone: nothing is
// opened, no driver is asked.
#pragma once

#include <optional>
#include <string>

#include "fewbit/selection.hpp"
#include "prepared/manifest.hpp"

namespace fewbit {

struct PreparedReaders {
  // Every backend of the engine with what its rules refuse, and Reason::layout where the prepared
  // buffers are not its own. Of another engine than fewbit only the backend that a layer was
  // prepared for is taken to read it.
  Selection selection;
  // Nothing was chosen: what the forced backend, else the one that it was prepared for, refuses.
  std::string refusing;  // that backend
  std::string needs;
  std::optional<Error> error;  // the same as unsupported, or a forced backend that is unknown
};
// problem: the layer's, for the activations and tokens that are asked about. Without a forced
// backend another engine's is the one that the layer was prepared for. Error invalid_argument: a
// problem that makes no sense.
Result<PreparedReaders> prepared_readers(const PreparedLayerInfo& layer, const MoeProblem& problem,
                                         const DeviceInfo& device, SelectOptions options);

// Whose kernels read a layer; fewbit for an unknown backend.
Engine engine_of(const PreparedLayerInfo& layer);

}  // namespace fewbit
