// SPDX-License-Identifier: Apache-2.0
// Loops that do nothing but reach a limit of the machine, to measure others by.
#pragma once

#include <cstdint>

namespace fewbit {

// `rounds` rounds of independent f32 multiply-adds in registers; returns how many floating-point
// operations (two a multiply-add) that was. Starts depend on *sink and the result goes to it, so
// that nothing is left out or merged.
using FmaLoopFn = std::int64_t(std::int64_t rounds, float* sink);
FmaLoopFn fma_loop_generic, fma_loop_neon, fma_loop_avx2, fma_loop_avx512;

// The same with products of bf16 tiles in registers, four sums of which two elements each reach the
// sink: every one grows by 32 a round.
FmaLoopFn tile_loop_amx;

// Reads bytes [data, data + size) once in one stream, size a multiple of 256; returns their or.
using ReadLoopFn = std::uint64_t(const std::uint8_t* data, std::int64_t size);
ReadLoopFn read_loop_generic, read_loop_neon, read_loop_avx2, read_loop_avx512;

}  // namespace fewbit
