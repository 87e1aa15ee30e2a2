// SPDX-License-Identifier: Apache-2.0
// A region of a source file whose functions are compiled for an instruction set:
//
//   #include "core/isa_region.hpp"  // the intrinsics too; all includes come before the region
//   FEWBIT_ISA_BEGIN("avx2,fma,f16c")
//   … functions with pointers and sizes; no lambdas, no containers …
//   FEWBIT_ISA_END
//
// Never by -m flags on a file: inline functions of the headers it includes would then be compiled
// for that instruction set too, and the linker may keep those copies for the whole program.
#pragma once

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 reports the deliberately undefined operands of its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>  // IWYU pragma: export
#pragma GCC diagnostic pop
#else
#include <immintrin.h>  // IWYU pragma: export
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>  // IWYU pragma: export
#endif

#define FEWBIT_PRAGMA_(text) _Pragma(#text)

#if defined(__clang__)
#define FEWBIT_ISA_BEGIN(features) \
  FEWBIT_PRAGMA_(clang attribute push(__attribute__((target(features))), apply_to = function))
#define FEWBIT_ISA_END FEWBIT_PRAGMA_(clang attribute pop)
#else
#define FEWBIT_ISA_BEGIN(features) \
  FEWBIT_PRAGMA_(GCC push_options) FEWBIT_PRAGMA_(GCC target(features))
#define FEWBIT_ISA_END FEWBIT_PRAGMA_(GCC pop_options)
#endif
