// SPDX-License-Identifier: Apache-2.0
// What the public handles Model and Sequence hold.
#pragma once

#include <memory>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fewbit/model.hpp"
#include "model/decoder.hpp"

namespace fewbit {

struct Model::State {
  ModelConfig config;
  ModelReport report;
  std::int64_t max_tokens = 0;
  std::shared_ptr<Executor> executor;
  Decoder decoder;
};

// Buffers belong to the sequence, so that sequences of one model are independent.
struct Sequence::State {
  const void* model = nullptr;  // the Model::State that made it
  std::int64_t length = 0;
  std::int64_t capacity = 0;
  std::vector<AlignedBuffer> buffers;
  std::vector<std::span<std::byte>> caches;  // one a layer
  AlignedBuffer workspace;
};

}  // namespace fewbit
