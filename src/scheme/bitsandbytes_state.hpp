// SPDX-License-Identifier: Apache-2.0
// What bitsandbytes says of a 4-bit matrix in the tensor beside it, a JSON text.
#pragma once

#include <string>
#include <vector>

#include "fewbit/scheme.hpp"

namespace fewbit {

struct BitsandbytesState {
  std::string quant_type;  // "nf4", "fp4"
  Shape shape;             // of the matrix
  std::int64_t block = 0;  // codes that share a scale, counted row after row
  // Scales are codes themselves: nested_quant_map[code] * nested_absmax[i / block] + offset.
  bool nested = false;
  std::int64_t nested_block = 0;
  double nested_offset = 0;
};

// Suffix of the part; empty when the module has none.
std::string_view bitsandbytes_state_part(const Module& module);
// Errors: not_found, corrupt (JSON, a key with what was found).
Result<BitsandbytesState> read_bitsandbytes_state(const Checkpoint& checkpoint,
                                                  const Module& module);

// Columns of a row that share a scale wherever the row begins: blocks run on from one row to the
// next, so it is the block only where rows are whole blocks.
std::int64_t bitsandbytes_group(const BitsandbytesState& state);

// What the codes of a block are multiplied by, one value a block counted row after row.
// Precondition: the module is readable. Errors: corrupt (types, numbers of values).
Result<std::vector<float>> bitsandbytes_block_scales(const Checkpoint& checkpoint,
                                                     const Module& module,
                                                     const BitsandbytesState& state);
// The same of 8-bit codes, one value a row: SCB is the largest magnitude of a row, 127 the code.
Result<std::vector<float>> bitsandbytes_row_scales(const Checkpoint& checkpoint,
                                                   const Module& module);

}  // namespace fewbit
