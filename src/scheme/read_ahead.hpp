// SPDX-License-Identifier: Apache-2.0
// Fetches the scales of a checkpoint from the disk before they are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/scheme.hpp"

namespace fewbit {

// Where only the scales are read, each stands between codes many times its size: the system would
// fetch those with it, and one scale after the other. The parts beside the codes of each module are
// asked for some modules ahead, in the order of reading. Where all is read, or nothing but headers,
// there is nothing to gain, and nothing is asked for.
class ReadAhead {
 public:
  // Borrows both.
  ReadAhead(const Checkpoint& checkpoint, std::span<const Module> modules, Depth depth);
  // Module number `next` is about to be read; numbers only grow.
  void before(std::size_t next);

 private:
  std::uint64_t ask(const Module& module) const;

  const Checkpoint& checkpoint_;
  std::span<const Module> modules_;
  std::size_t asked_ = 0;  // modules
  std::size_t last_ = 0;   // asked_ before the last batch
};

}  // namespace fewbit
