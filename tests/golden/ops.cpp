// SPDX-License-Identifier: Apache-2.0
// The operations that the library can run today; a golden set's other operations are reported as
// not supported yet.
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

constexpr Op ops[] = {
    {"", nullptr},
    {"dequant_nvfp4", dequant_nvfp4},
};

}  // namespace

std::span<const Op> all_ops() { return std::span(ops).subspan(1); }

}  // namespace fewbit::golden
