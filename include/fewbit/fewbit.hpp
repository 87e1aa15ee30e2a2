// SPDX-License-Identifier: Apache-2.0
// The whole library, in the order of the data's path.
#pragma once

#include "fewbit/checkpoint.hpp"        // IWYU pragma: export
#include "fewbit/executor.hpp"          // IWYU pragma: export
#include "fewbit/layouts.hpp"           // IWYU pragma: export
#include "fewbit/linear.hpp"            // IWYU pragma: export
#include "fewbit/model.hpp"             // IWYU pragma: export
#include "fewbit/moe.hpp"               // IWYU pragma: export
#include "fewbit/prepare.hpp"           // IWYU pragma: export
#include "fewbit/prepare_in_place.hpp"  // IWYU pragma: export
#include "fewbit/quantize.hpp"          // IWYU pragma: export
#include "fewbit/quantized.hpp"         // IWYU pragma: export
#include "fewbit/result.hpp"            // IWYU pragma: export
#include "fewbit/scheme.hpp"            // IWYU pragma: export
#include "fewbit/selection.hpp"         // IWYU pragma: export
#include "fewbit/sglang.hpp"            // IWYU pragma: export
#include "fewbit/tensor.hpp"            // IWYU pragma: export
