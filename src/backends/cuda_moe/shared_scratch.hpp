// SPDX-License-Identifier: Apache-2.0
// Device memory of calls whose arguments are on the host.
#pragma once

#include <memory>
#include <mutex>

#include "backends/cuda_moe/scratch_alignment.hpp"
#include "device/device.hpp"

namespace fewbit::cuda {

// A stream and memory for calls whose activations are on the host: one for all layers of a process,
// as large as the largest call needs. Calls on it wait for each other.
class SharedScratch {
 public:
  static Result<std::shared_ptr<SharedScratch>> get();
  explicit SharedScratch(device::Stream stream) : stream_(std::move(stream)) {}

  const device::Stream& stream() const { return stream_; }
  std::mutex& mutex() { return mutex_; }
  // At least so many bytes, aligned to scratch_alignment; with the mutex held.
  Result<std::byte*> memory(std::uint64_t bytes);

 private:
  device::Stream stream_;
  std::mutex mutex_;
  device::Buffer buffer_;
};

}  // namespace fewbit::cuda
