// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/shared_scratch.hpp"

#include <cstdint>

namespace fewbit::cuda {

Result<std::shared_ptr<SharedScratch>> SharedScratch::get() {
  static std::mutex mutex;
  static std::weak_ptr<SharedScratch> shared;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<SharedScratch> scratch = shared.lock();
  if (scratch == nullptr) {
    FEWBIT_TRY(device::Stream stream, device::Stream::create());
    scratch = std::make_shared<SharedScratch>(std::move(stream));
    shared = scratch;
  }
  return scratch;
}

Result<std::byte*> SharedScratch::memory(std::uint64_t bytes) {
  if (buffer_.size() < bytes + scratch_alignment) {
    buffer_ = device::Buffer();
    FEWBIT_TRY(buffer_, device::Buffer::allocate(bytes + scratch_alignment, stream_));
  }
  const auto past = reinterpret_cast<std::uintptr_t>(buffer_.data()) % scratch_alignment;
  return buffer_.data() + (past == 0 ? 0 : scratch_alignment - past);
}

}  // namespace fewbit::cuda
