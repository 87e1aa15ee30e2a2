// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/isa_region.hpp"
#include "kernels/cpu/lane16.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

namespace fewbit {
namespace {

#include "kernels/cpu/lane16_avx512_lanes.hpp"
#include "kernels/cpu/lane16_loops.hpp"

}  // namespace

Lane16Fn* lane16_avx512(Lane16Codes codes) { return kernel_of<Avx512>(codes); }

}  // namespace fewbit
FEWBIT_ISA_END
#endif
