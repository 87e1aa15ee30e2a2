// SPDX-License-Identifier: Apache-2.0
// Preparing f4_e2m1 matrices on the device: from rows as checkpoints hold them into layout
// cuda_f4_cells, the bytes that its closed form gives.
#pragma once

#include <cstdint>

#include "kernels/cuda/moe_f4.hpp"
#include "layout/cuda_f8_pack.hpp"
#include "layout/cuda_int_pack.hpp"

namespace fewbit::cuda {

// Matrices of `count` experts, each of two halves of `rows` rows (gate and up, or the upper and
// lower half of one matrix). Device pointers, 4-byte aligned codes.
struct PackF4Args {
  const std::uint8_t* codes[2] = {};   // [count] of [rows, depth/2], low nibble = even k
  const std::uint8_t* scales[2] = {};  // [count] of [rows, depth/16] e4m3 or [rows, depth/32] e8m0
  long long codes_stride = 0;          // bytes from one expert to the next
  long long scales_stride = 0;
  int count = 0;
  int rows = 0;
  int depth = 0;               // a multiple of the scale group
  std::uint8_t* to = nullptr;  // every byte is written
};

// nvfp4 or mxfp4.
int launch_pack_f4(CellFormat format, const PackF4Args& args, void* stream);

// The same for int4 and int8 matrices and layout cuda_int_cells. Of `first` the pointers and sizes
// of the first expert; strides in elements.
struct PackIntArgs {
  CudaIntSource first;
  long long codes_stride = 0;
  long long scales_stride = 0;  // of zero points too
  int count = 0;
  std::uint8_t* to = nullptr;
};

int launch_pack_int(const CudaIntForm& form, const PackIntArgs& args, void* stream);

// The same for f8_e4m3 matrices, with scales of MXFP8 or others, and layout cuda_f8_cells; strides
// in elements.
struct PackF8Args {
  CudaF8Source first;
  long long codes_stride = 0;
  long long scales_stride = 0;
  int count = 0;
  std::uint8_t* to = nullptr;
  std::uint32_t* nan = nullptr;  // becomes 1 where a code is NaN; or none
};

int launch_pack_f8(const PackF8Args& args, void* stream);

}  // namespace fewbit::cuda
