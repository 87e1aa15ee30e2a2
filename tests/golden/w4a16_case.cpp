// SPDX-License-Identifier: Apache-2.0
#include "golden/w4a16_case.hpp"

#include <string>

namespace fewbit::golden {
namespace {

Result<W4a16Matrix> matrix(const GoldenCase& c, const std::string& name, W4a16Source source,
                           BlockScaleStorage storage) {
  std::string scales = name + "_blockscale";
  if (storage == BlockScaleStorage::plain) scales += "_plain";
  if (source == W4a16Source::fp4_e8m0_k32) scales = name + "_e8m0_scale";
  FEWBIT_TRY(const Tensor codes, c.input(name + "_fp4"));
  FEWBIT_TRY(const Tensor block_scales, c.input(scales));
  FEWBIT_TRY(const Tensor global_scales, c.input(name + "_global_scale"));
  return W4a16Matrix{
      .codes = codes.view, .block_scales = block_scales.view, .global_scales = global_scales.view};
}

}  // namespace

Result<W4a16Input> read_w4a16_input(const GoldenCase& c, W4a16Source source,
                                    BlockScaleStorage storage) {
  W4a16Input input;
  input.source = source;
  input.block_scale_storage = storage;
  FEWBIT_TRY(input.hidden_size, c.int_param("hidden_size"));
  FEWBIT_TRY(input.intermediate_size, c.int_param("intermediate_size"));
  FEWBIT_TRY(const std::string activation, c.string_param("activation"));
  FEWBIT_TRY(input.gating, w4a16_gating(activation));
  FEWBIT_TRY(const std::string order, c.string_param("w13_layout"));
  FEWBIT_TRY(input.w13_order, w13_order_from_name(order));
  FEWBIT_TRY(const std::string dtype, c.string_param("params_dtype"));
  input.activation_dtype = dtype == "bf16" ? DType::bf16 : DType::f16;
  if (dtype != "bf16" && dtype != "fp16") {
    return Error{ErrorCode::invalid_argument, "params_dtype '" + dtype + "'", c.name};
  }
  FEWBIT_TRY(input.w13, matrix(c, "w13", source, storage));
  FEWBIT_TRY(input.w2, matrix(c, "w2", source, storage));
  return input;
}

}  // namespace fewbit::golden
