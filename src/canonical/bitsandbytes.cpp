// SPDX-License-Identifier: Apache-2.0
// bitsandbytes: NF4 with the high nibble first and perhaps scales that are codes themselves; i8
// rows whose scale is the largest magnitude.
#include <fmt/format.h>

#include "canonical/pack_rows.hpp"
#include "canonical/parts.hpp"
#include "canonical/storage.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"
#include "scheme/bitsandbytes_state.hpp"

namespace fewbit {
namespace {

Result<Tensor> grid_of(const std::vector<float>& values, std::int64_t n) {
  const auto columns = static_cast<std::int64_t>(values.size()) / n;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::f32, {n, columns}));
  FEWBIT_TRY(convert_from_f32(values, DType::f32, out.bytes));
  return out.tensor;
}

// One scale a group of a row, of the block that it lies in.
std::vector<float> spread_blocks(const std::vector<float>& blocks, const Module& module,
                                 std::int64_t group, std::int64_t block) {
  if (group == block) return blocks;
  std::vector<float> scales(static_cast<std::size_t>(module.n * (module.k / group)));
  for (std::size_t i = 0; i < scales.size(); ++i) {
    scales[i] = blocks[i * static_cast<std::size_t>(group) / static_cast<std::size_t>(block)];
  }
  return scales;
}

// Codes [n, k] one after another to rows of whole bytes.
Result<Tensor> byte_rows(const Tensor& flat, std::int64_t n, std::int64_t k) {
  const std::int64_t row_bytes = ceil_div(k, std::int64_t{2});
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, {n, row_bytes}));
  const auto nibble = [&](std::int64_t at) {
    const auto byte = std::to_integer<unsigned>(flat.view.bytes[static_cast<std::size_t>(at / 2)]);
    return at % 2 == 0 ? byte >> 4U : byte & 15U;
  };
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t i = 0; i < row_bytes; ++i) {
      const std::int64_t at = row * k + 2 * i;
      const unsigned high = 2 * i + 1 < k ? nibble(at + 1) : 0;
      out.bytes[static_cast<std::size_t>(row * row_bytes + i)] =
          static_cast<std::byte>(nibble(at) | high << 4U);
    }
  }
  return out.tensor;
}

Result<void> read_four_bit(const Checkpoint& checkpoint, const Module& module,
                           QuantizedTensor& made) {
  FEWBIT_TRY(const BitsandbytesState state, read_bitsandbytes_state(checkpoint, module));
  const Shape expected = {module.n, module.k};
  const std::int64_t group = module.scheme.scale->granularity.cols;
  if (state.shape != expected || bitsandbytes_group(state) != group) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("matrix {} in blocks of {}, expected {} in groups of {}",
                             shape_text(state.shape), state.block, shape_text(expected), group),
                 module.name};
  }
  FEWBIT_TRY(const Tensor codes, part_tensor(checkpoint, module, "weight"));
  const auto bytes = ceil_div(module.n * module.k, std::int64_t{2});
  if (static_cast<std::int64_t>(codes.view.bytes.size()) != bytes) {
    return Error{ErrorCode::corrupt,
                 fmt::format("{} bytes, expected {} for {}", codes.view.bytes.size(), bytes,
                             shape_text(expected)),
                 std::string(module.part("weight"))};
  }
  if (module.k % 2 == 0) {
    FEWBIT_TRY(made.codes, swap_nibbles(codes));
  } else {
    FEWBIT_TRY(made.codes, byte_rows(codes, module.n, module.k));
  }
  FEWBIT_TRY(const std::vector<float> blocks, bitsandbytes_block_scales(checkpoint, module, state));
  FEWBIT_TRY(made.scales, grid_of(spread_blocks(blocks, module, group, state.block), module.n));
  return {};
}

Result<void> read_eight_bit(const Checkpoint& checkpoint, const Module& module,
                            QuantizedTensor& made) {
  FEWBIT_TRY(made.codes, part_tensor(checkpoint, module, "weight"));
  FEWBIT_TRY(const std::vector<float> scales, bitsandbytes_row_scales(checkpoint, module));
  FEWBIT_TRY(made.scales, grid_of(scales, module.n));
  return {};
}

}  // namespace

Result<QuantizedTensor> canonicalize_bitsandbytes(const Checkpoint& checkpoint,
                                                  const Module& module,
                                                  std::int64_t /*fused_expert*/) {
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  made.scheme.packing = Packing::none;
  if (module.scheme.weight == DType::nf4) {
    FEWBIT_TRY(read_four_bit(checkpoint, module, made));
  } else {
    FEWBIT_TRY(read_eight_bit(checkpoint, module, made));
  }
  if (const auto checked = check_quantized(made); !checked) {
    return Error{checked.error().code, checked.error().what, module.name};
  }
  return made;
}

}  // namespace fewbit
