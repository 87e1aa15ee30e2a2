// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/lane16_tiles.hpp"
#include "kernels/cpu/machine_limits.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,amx-tile,amx-bf16")

namespace fewbit {
namespace {

#include "kernels/cpu/amx_unit.hpp"

}  // namespace

std::int64_t tile_loop_amx(std::int64_t rounds, float* sink) {
  alignas(64) std::uint16_t ones[512];
  alignas(64) float sums[256];
  for (std::uint16_t& one : ones) one = 0x3f80;
  for (float& sum : sums) sum = *sink;
  AmxUnit unit;
  unit.rows(16);
  unit.load<0>(sums, 64);
  unit.load<1>(sums, 64);
  unit.load<2>(sums, 64);
  unit.load<3>(sums, 64);
  unit.operand<4>(ones);
  unit.operand<5>(ones);
  unit.operand<6>(ones);
  unit.operand<7>(ones);
  for (std::int64_t i = 0; i < rounds; ++i) {
    unit.dot<0, 4, 6>();
    unit.dot<2, 5, 6>();
    unit.dot<1, 4, 7>();
    unit.dot<3, 5, 7>();
  }
  *sink = 0;
  unit.store<0>(sums, 64);
  *sink += sums[0] + sums[255];
  unit.store<1>(sums, 64);
  *sink += sums[0] + sums[255];
  unit.store<2>(sums, 64);
  *sink += sums[0] + sums[255];
  unit.store<3>(sums, 64);
  *sink += sums[0] + sums[255];
  unit.release();
  return rounds * 4 * 16 * 16 * 32 * 2;
}

}  // namespace fewbit
FEWBIT_ISA_END
#endif
