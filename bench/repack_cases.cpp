// SPDX-License-Identifier: Apache-2.0
#include "bench/repack_cases.hpp"

#include "bench/repack_buffers.hpp"

namespace fewbit::bench {

Result<std::vector<RepackCase>> repack_cases(IsaLevel isa) {
  FEWBIT_TRY(const SharedBuffers buffers, make_buffers());
  std::vector<RepackCase> cases;
  add_code_cases(buffers, isa, cases);
  add_grid_cases(buffers, isa, cases);
  add_marlin_cases(buffers, cases);
  add_fp8_cases(buffers, isa, cases);
  return cases;
}

}  // namespace fewbit::bench
