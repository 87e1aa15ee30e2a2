// SPDX-License-Identifier: Apache-2.0
#include "scheme/read_ahead.hpp"

#include <algorithm>

#include "checkpoint/mapped_file.hpp"

namespace fewbit {
namespace {

constexpr std::uint64_t batch = std::uint64_t{32} << 20;

}  // namespace

ReadAhead::ReadAhead(const Checkpoint& checkpoint, std::span<const Module> modules, Depth depth)
    : checkpoint_(checkpoint), modules_(modules) {
  if (depth != Depth::scales) asked_ = modules_.size();
}

void ReadAhead::before(std::size_t next) {
  // A batch while the one before it is read.
  if (next < last_ || asked_ == modules_.size()) return;
  last_ = asked_;
  for (std::uint64_t bytes = 0; asked_ < modules_.size() && bytes < batch; ++asked_) {
    bytes += ask(modules_[asked_]);
  }
}

std::uint64_t ReadAhead::ask(const Module& module) const {
  if (!module.scheme.quantized() || module.parts.size() < 2) return 0;
  std::uint64_t largest = 0;
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = checkpoint_.find(part.tensor);
    if (info != nullptr) largest = std::max(largest, info->bytes);
  }
  std::uint64_t asked = 0;
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = checkpoint_.find(part.tensor);
    if (info == nullptr || info->bytes == largest) continue;
    MappedFile::will_read(checkpoint_.tensor(*info).view.bytes);
    asked += info->bytes;
  }
  return asked;
}

}  // namespace fewbit
