// SPDX-License-Identifier: Apache-2.0
// Which schemes of weights have cells that the CUDA kernels read, and why others have none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fewbit/selection.hpp"
#include "kernels/cuda/moe_f4.hpp"
#include "layout/place.hpp"

namespace fewbit::cuda {

// GGUF blocks that have an exact form with codes and scales apart (canonical/gguf_exact.hpp): that
// form, in which they are packed. Others as they are.
Scheme read_as(const Scheme& scheme);

// Empty: no kernel reads them.
std::optional<CellFormat> cells_of(const Scheme& scheme);
// Every unmet need of a matrix. which: "gate and up".
void weight_refusals(const std::string& which, const Scheme& scheme,
                     std::vector<Refusal>& refusals);

// "cuda_f4_cells", "cuda_int4_cells", "cuda_int8_cells", "cuda_ternary_cells", "cuda_nf3_cells",
// "cuda_f8_cells".
const char* layout_name(const CellFormat& format);
// Columns are packed in the order of their groups, and activations taken in it.
bool is_ordered(const Scheme& scheme);
// What rows and k of a matrix are a multiple of.
std::int64_t size_multiple(const CellFormat& format);
// Of a matrix of two halves.
std::int64_t packed_bytes(const CellFormat& format, Dims half);

}  // namespace fewbit::cuda
