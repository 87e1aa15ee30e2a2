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

Result<std::vector<float>> read_floats(const Checkpoint& checkpoint, const Module& module,
                                       std::string_view suffix, std::int64_t count) {
  FEWBIT_TRY(const Tensor tensor, part_tensor(checkpoint, module, suffix));
  const std::string name(module.part(suffix));
  FEWBIT_TRY(check_part_dtype(tensor, DType::f32, name));
  std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
  if (static_cast<std::int64_t>(values.size()) != count) {
    return Error{ErrorCode::corrupt, fmt::format("{} values, expected {}", values.size(), count),
                 name};
  }
  FEWBIT_TRY(convert_to_f32(DType::f32, tensor.view.bytes, values));
  return values;
}

Result<std::vector<float>> nested_scales(const Checkpoint& checkpoint, const Module& module,
                                         const BitsandbytesState& state, std::int64_t count) {
  FEWBIT_TRY(const Tensor codes, part_tensor(checkpoint, module, "weight.absmax"));
  if (codes.view.dtype != DType::u8 ||
      static_cast<std::int64_t>(codes.view.bytes.size()) != count) {
    return Error{ErrorCode::corrupt,
                 fmt::format("{} {}, expected u8 [{}]", dtype_name(codes.view.dtype),
                             shape_text(codes.view.shape), count),
                 std::string(module.part("weight.absmax"))};
  }
  FEWBIT_TRY(const auto map, read_floats(checkpoint, module, "weight.nested_quant_map", 256));
  FEWBIT_TRY(const auto factors, read_floats(checkpoint, module, "weight.nested_absmax",
                                             ceil_div(count, state.nested_block)));
  std::vector<float> scales(static_cast<std::size_t>(count));
  const auto offset = static_cast<float>(state.nested_offset);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto code = std::to_integer<std::size_t>(codes.view.bytes[i]);
    scales[i] = map[code] * factors[i / static_cast<std::size_t>(state.nested_block)] + offset;
  }
  return scales;
}

Result<Tensor> grid_of(const std::vector<float>& values, std::int64_t n) {
  const auto columns = static_cast<std::int64_t>(values.size()) / n;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::f32, {n, columns}));
  FEWBIT_TRY(convert_from_f32(values, DType::f32, out.bytes));
  return out.tensor;
}

Result<void> read_four_bit(const Checkpoint& checkpoint, const Module& module,
                           QuantizedTensor& made) {
  FEWBIT_TRY(const BitsandbytesState state, read_bitsandbytes_state(checkpoint, module));
  const Shape expected = {module.n, module.k};
  if (state.shape != expected || state.block != module.scheme.scale->granularity.cols) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("matrix {} in blocks of {}, expected {} in blocks of {}",
                             shape_text(state.shape), state.block, shape_text(expected),
                             module.scheme.scale->granularity.cols),
                 module.name};
  }
  FEWBIT_TRY(const Tensor codes, part_tensor(checkpoint, module, "weight"));
  FEWBIT_TRY(made.codes, swap_nibbles(codes));
  const std::int64_t count = module.n * (module.k / state.block);
  FEWBIT_TRY(const std::vector<float> scales,
             state.nested ? nested_scales(checkpoint, module, state, count)
                          : read_floats(checkpoint, module, "weight.absmax", count));
  FEWBIT_TRY(made.scales, grid_of(scales, module.n));
  return {};
}

Result<void> read_eight_bit(const Checkpoint& checkpoint, const Module& module,
                            QuantizedTensor& made) {
  FEWBIT_TRY(made.codes, part_tensor(checkpoint, module, "weight"));
  FEWBIT_TRY(std::vector<float> scales, read_floats(checkpoint, module, "SCB", module.n));
  for (float& scale : scales) scale /= 127.0F;
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
