// SPDX-License-Identifier: Apache-2.0
// Codes [n, k] with a grid of scales beside them, whatever its granularity and whoever wrote it:
// FP8, MXFP8, MXFP4, INT8, INT4 packed along n, NF3.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "canonical/grid.hpp"
#include "canonical/pack_rows.hpp"
#include "canonical/parts.hpp"
#include "canonical/storage.hpp"
#include "canonical/transpose.hpp"
#include "core/checked.hpp"
#include "scheme/fp8_config.hpp"
#include "scheme/qkv_rows.hpp"
#include "scheme/scale_fit.hpp"
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

// Shape of the stored codes of one matrix.
Shape code_shape(const Module& module) {
  if (module.scheme.packing == Packing::nibbles_n) return {module.n / 2, module.k};
  const auto bits = static_cast<std::uint64_t>(dtype_bits(module.scheme.weight));
  const std::uint64_t row = (static_cast<std::uint64_t>(module.k) * bits + 7) / 8;
  return {module.n, static_cast<std::int64_t>(row)};
}

// The codes of one matrix as stored; bytes stand for packed codes, signed or not.
Result<Tensor> read_codes(const Checkpoint& checkpoint, const Module& module,
                          std::int64_t fused_expert) {
  const std::string_view suffix = module.part("weight").empty() ? "weight_packed" : "weight";
  FEWBIT_TRY(Tensor codes, part_tensor(checkpoint, module, suffix));
  const std::string name(module.part(suffix));
  const bool packed = dtype_bits(module.scheme.weight) < 8;
  if (module.scheme.producer == Producer::mlx) words_as_bytes(codes, module.scheme.weight);
  if (packed && codes.view.dtype == DType::i8) codes.view.dtype = DType::u8;
  FEWBIT_TRY(check_part_dtype(codes, packed ? DType::u8 : module.scheme.weight, name));
  FEWBIT_TRY(check_part_rank(codes, fused_expert < 0 ? 2 : 3, name));
  if (fused_expert >= 0) codes = first_dim_slice(codes, fused_expert);
  if (module.transposed && codes.view.shape == Shape{module.k, module.n}) {
    FEWBIT_TRY(codes, transposed_copy(codes));
  }
  if (codes.view.shape != code_shape(module)) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("shape is {}, expected {} for a matrix [{}, {}]", shape_text(codes.view.shape),
                    shape_text(code_shape(module)), module.n, module.k),
        name};
  }
  return codes;
}

// Rows of the stored grid repeated to the rows of the canonical one.
Result<Tensor> repeat_rows(const Tensor& stored, const ScaleFit& fit, std::int64_t n) {
  const std::int64_t rows = groups_along(n, fit.granularity.rows);
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(stored.view.dtype, {rows, fit.cols}));
  const std::size_t row_bytes = out.bytes.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto from = static_cast<std::size_t>(stored_scale_row(fit, n, row)) * row_bytes;
    std::memcpy(out.bytes.data() + static_cast<std::size_t>(row) * row_bytes,
                stored.view.bytes.data() + from, row_bytes);
  }
  return out.tensor;
}

// One scale each for q, k and v, repeated over their rows.
Result<Tensor> spread_qkv(const Checkpoint& checkpoint, const Module& module, const Tensor& stored,
                          const std::string& name) {
  const auto rows = qkv_rows(checkpoint, module.n);
  const std::int64_t each = module.scheme.scale->granularity.rows;
  if (!rows || each < 1) {
    return Error{ErrorCode::corrupt,
                 fmt::format("3 scales for {} rows: the heads of config.json do not say which rows "
                             "are q, k and v",
                             module.n),
                 name};
  }
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(stored.view.dtype, {groups_along(module.n, each), 1}));
  const std::size_t width = stored.view.bytes.size() / 3;
  std::byte* target = out.bytes.data();
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::int64_t row = 0; row < (*rows)[i] / each; ++row, target += width) {
      std::memcpy(target, stored.view.bytes.data() + i * width, width);
    }
  }
  return out.tensor;
}

// The grid of one matrix, [rows, columns].
Result<Tensor> read_scales(const Checkpoint& checkpoint, const Module& module,
                           std::int64_t fused_expert) {
  const std::vector<std::string_view> names = scale_parts(module);
  if (names.empty()) {
    return Error{ErrorCode::not_found, "a scale beside the codes is missing", module.name};
  }
  FEWBIT_TRY(Tensor scales, part_tensor(checkpoint, module, names.front()));
  const std::string name(module.part(names.front()));
  const ScaleSpec& spec = *module.scheme.scale;
  if (spec.dtype == DType::f8_e8m0 && scales.view.dtype == DType::u8) {
    scales.view.dtype = DType::f8_e8m0;
  }
  FEWBIT_TRY(check_part_dtype(scales, spec.dtype, name));
  if (scales.view.shape == Shape{3} && is_fused_qkv(module)) {
    return spread_qkv(checkpoint, module, scales, name);
  }
  const ScaledMatrix matrix{module.experts, module.n, module.k, module.transposed};
  auto fit = fit_scale_as(matrix, scales.view.shape, spec.granularity);
  if (!fit) {
    FEWBIT_TRY(const Declared declared, read_declared(checkpoint));
    const auto config = read_fp8_config(declared);
    const Granularity block = config ? config->block.value_or(usual_block) : usual_block;
    fit = fit_scale_as(matrix, scales.view.shape, spec.granularity, block);
  }
  if (!fit) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("shape is {}, expected [{}, {}] for a matrix [{}, {}]",
                    shape_text(scales.view.shape), groups_along(module.n, spec.granularity.rows),
                    groups_along(module.k, spec.granularity.cols), module.n, module.k),
        name};
  }
  if (fit->per_expert) scales = first_dim_slice(scales, fused_expert);
  scales.view.shape = {fit->rows, fit->cols};
  if (fit->transposed) {
    std::swap(scales.view.shape[0], scales.view.shape[1]);
    FEWBIT_TRY(scales, transposed_copy(scales));
  }
  if (fit->pieces > 1) return repeat_rows(scales, *fit, module.n);
  return scales;
}

}  // namespace

Result<QuantizedTensor> canonicalize_scaled(const Checkpoint& checkpoint, const Module& module,
                                            std::int64_t fused_expert) {
  QuantizedTensor made;
  made.n = module.n;
  made.k = module.k;
  made.scheme = module.scheme;
  FEWBIT_TRY(made.codes, read_codes(checkpoint, module, fused_expert));
  if (module.scheme.packing == Packing::nibbles_n) {
    FEWBIT_TRY(made.codes, unpack_row_pairs(made.codes, module.n, module.k));
    made.scheme.packing = Packing::nibbles_k;
  }
  FEWBIT_TRY(made.scales, read_scales(checkpoint, module, fused_expert));
  if (module.scheme.scale->has_global) {
    FEWBIT_TRY(made.global_scale, read_factor(checkpoint, module, "weight_scale_2", fused_expert));
    made.stored_global_scale = made.global_scale;
  }
  FEWBIT_TRY(made.pre_quant_scale, read_pre_quant_scale(checkpoint, module, fused_expert));
  if (const auto checked = check_quantized(made); !checked) {
    return Error{checked.error().code, checked.error().what, module.name};
  }
  return made;
}

}  // namespace fewbit
