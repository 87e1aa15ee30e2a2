// SPDX-License-Identifier: Apache-2.0
// The value of every code of every small number format, and the code of every f32.
// Decoding is exact. Encoding is one rounding, nearest, ties to even, unless a name says otherwise.
#pragma once

#include "core/float_convert_f16.hpp"      // IWYU pragma: export
#include "core/float_convert_f4.hpp"       // IWYU pragma: export
#include "core/float_convert_f6.hpp"       // IWYU pragma: export
#include "core/float_convert_f8.hpp"       // IWYU pragma: export
#include "core/float_convert_f8_fnuz.hpp"  // IWYU pragma: export
#include "core/float_convert_scale.hpp"    // IWYU pragma: export
