// SPDX-License-Identifier: Apache-2.0
// Every repacking that is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"

namespace fewbit::bench {

struct RepackCase {
  std::string name;
  std::int64_t read_bytes = 0;  // of the source, once
  std::int64_t written_bytes = 0;
  std::function<Result<void>(Executor&)> run;
};

// Buffers are made here and kept by the cases that use them. Codes of eight experts' gate and up of
// a layer with hidden size 4096 and intermediate size 1536, or as many bytes of what is smaller.
Result<std::vector<RepackCase>> repack_cases(IsaLevel isa);

}  // namespace fewbit::bench
