// SPDX-License-Identifier: Apache-2.0
// The operations that the library can run today; a golden set's other operations are reported as
// not supported yet.
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

constexpr Op ops[] = {
    {"", nullptr},
    {"dequant_nvfp4", dequant_nvfp4},
    {"dequant_gguf", dequant_gguf},
    {"dequant_q2_0", dequant_q2_0},
    {"quantize_gguf", quantize_gguf},
};

}  // namespace

std::span<const Op> all_ops() { return std::span(ops).subspan(1); }

}  // namespace fewbit::golden
