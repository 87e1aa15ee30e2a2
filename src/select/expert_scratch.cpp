// SPDX-License-Identifier: Apache-2.0
#include "select/expert_scratch.hpp"

#include "core/checked.hpp"

namespace fewbit {

Result<void> ExpertScratch::lay_out(const MoePlan& plan) {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> begin;
  for (const PlannedBuffer& buffer : plan.buffers) {
    begin.push_back(bytes);
    if (buffer.use == BufferUse::verbatim) continue;
    bytes += round_up(buffer.expert_bytes, std::uint64_t{AlignedBuffer::alignment});
  }
  if (memory.size() < bytes) {
    FEWBIT_TRY(memory, AlignedBuffer::allocate(bytes));
  }
  shares.clear();
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlannedBuffer& buffer = plan.buffers[i];
    const bool verbatim = buffer.use == BufferUse::verbatim;
    shares.push_back(verbatim ? std::span<std::byte>{}
                              : memory.span().subspan(begin[i], buffer.expert_bytes));
  }
  return {};
}

}  // namespace fewbit
