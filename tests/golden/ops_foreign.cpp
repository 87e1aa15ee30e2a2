// SPDX-License-Identifier: Apache-2.0
// Layouts of other kernels: TRT-LLM, XPU, halves in another order.
#include <string>
#include <vector>

#include "golden/ops.hpp"
#include "golden/refusal.hpp"
#include "layout/prepare_trtllm.hpp"
#include "layout/prepare_xpu.hpp"
#include "layout/swap_halves.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit::golden {
namespace {

Error wrong(const GoldenCase& c, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), c.name};
}

Result<TrtllmMatrix> trtllm_matrix(const GoldenCase& c, const std::string& codes,
                                   const std::string& scales) {
  FEWBIT_TRY(const Tensor a, c.input(codes));
  FEWBIT_TRY(const Tensor b, c.input(scales));
  return TrtllmMatrix{.codes = a.view, .scales = b.view};
}

Shape shape_of(const Json& list) {
  Shape shape;
  for (const Json& extent : *list.as_array()) shape.push_back(extent.as_int64().value_or(0));
  return shape;
}

}  // namespace

Result<Outputs> trtllm_fp4_prepare(const GoldenCase& c) {
  TrtllmFp4Input input;
  FEWBIT_TRY(input.hidden_size, c.int_param("hidden_size"));
  FEWBIT_TRY(input.intermediate_size, c.int_param("intermediate_size"));
  FEWBIT_TRY(input.epilogue_tile_m, c.int_param("epilogue_tile_m"));
  FEWBIT_TRY(const bool gated, c.bool_param("is_gated"));
  input.gating = gated ? Gating::gated : Gating::ungated;
  FEWBIT_TRY(input.gemm1, trtllm_matrix(c, "gemm1_weights", "gemm1_scales"));
  FEWBIT_TRY(input.gemm2, trtllm_matrix(c, "gemm2_weights", "gemm2_scales"));
  FEWBIT_TRY(const TrtllmResult result, prepare_trtllm_fp4(input));
  return Outputs{{"gemm1_weights", result.gemm1.codes},
                 {"gemm1_scales", result.gemm1.scales},
                 {"gemm2_weights", result.gemm2.codes},
                 {"gemm2_scales", result.gemm2.scales}};
}

Result<Outputs> trtllm_mxint4_prepare(const GoldenCase& c) {
  TrtllmMxint4Input input;
  FEWBIT_TRY(input.hidden_size, c.int_param("hidden_size"));
  FEWBIT_TRY(input.intermediate_size, c.int_param("intermediate_size"));
  FEWBIT_TRY(input.gemm1, trtllm_matrix(c, "w13_qweight", "w13_scales"));
  FEWBIT_TRY(input.gemm2, trtllm_matrix(c, "w2_qweight", "w2_scales"));
  FEWBIT_TRY(const TrtllmResult result, prepare_trtllm_mxint4(input));
  return Outputs{{"w13", result.gemm1.codes},
                 {"w13_scales", result.gemm1.scales},
                 {"w2", result.gemm2.codes},
                 {"w2_scales", result.gemm2.scales}};
}

Result<Outputs> trtllm_row_indices(const GoldenCase& c) {
  TrtllmRows rows;
  FEWBIT_TRY(rows.rows, c.int_param("rows"));
  FEWBIT_TRY(const bool gated, c.bool_param("is_gated"));
  FEWBIT_TRY(const std::int64_t tile, c.int_param("epilogue_tile_m"));
  rows.gating = gated ? Gating::gated : Gating::ungated;
  rows.block = trtllm_block(tile);
  if (!rows.accepted()) return wrong(c, "rows are not accepted");
  std::vector<std::int64_t> sources;
  for (std::int64_t row = 0; row < rows.rows; ++row) sources.push_back(rows.source(row));
  return Outputs{{"new_row_takes_old_row", tensor_of(DType::i64, {rows.rows}, sources)}};
}

Result<Outputs> process_weights_xpu(const GoldenCase& c) {
  FEWBIT_TRY(const std::int64_t group_size, c.int_param("group_size"));
  FEWBIT_TRY(const std::int64_t hidden, c.int_param("hidden_size"));
  FEWBIT_TRY(const std::int64_t width, c.int_param("intermediate_size"));
  Outputs outputs;
  for (const std::string name : {"w13", "w2"}) {
    FEWBIT_TRY(const Tensor words, c.input(name + "_qweight"));
    FEWBIT_TRY(const Tensor scales, c.input(name + "_scales"));
    const Dims dims = name == "w13" ? Dims{.n = 2 * width, .k = hidden} : Dims{hidden, width};
    FEWBIT_TRY(const XpuResult result,
               prepare_xpu({.words = words.view, .scales = scales.view}, dims, group_size));
    outputs[name] = result.codes;
    outputs[name + "_scales"] = result.scales;
    if (c.has_input(name + "_bias")) {
      FEWBIT_TRY(outputs[name + "_bias"], c.input(name + "_bias"));
    }
  }
  return outputs;
}

Result<Outputs> reorder_w1w3_to_w3w1(const GoldenCase& c) {
  FEWBIT_TRY(const std::int64_t dim, c.int_param("dim"));
  FEWBIT_TRY(const Tensor weight, c.input("weight"));
  FEWBIT_TRY(const Tensor scale, c.input("scale"));
  FEWBIT_TRY(const WeightAndScale result,
             fewbit::reorder_w1w3_to_w3w1(weight.view, scale.view, dim));
  return Outputs{{"weight", result.weight}, {"scale", result.scale}};
}

Result<Outputs> reorder_w1w3_errors_table(const GoldenCase& c) {
  // A scale of another extent leaves their split with fewer parts than two, or with more.
  constexpr Cause causes[] = {
      {"not enough values to unpack", "dimension -1 of the scale has extent 4", "the weight, 8"},
      {"too many values to unpack", "dimension -1 of the scale has extent 16", "the weight, 8"},
      {"Expected even size in dim -2", "extent 5 of dimension -2", "an even one"},
  };
  const Json* rows = c.params->find("rows");
  if (rows == nullptr || rows->as_array() == nullptr) return wrong(c, "no rows");
  for (const Json& row : *rows->as_array()) {
    FEWBIT_TRY(const OwnedTensor weight, allocate_tensor(DType::u8, shape_of(*row.find("weight"))));
    FEWBIT_TRY(const OwnedTensor scale, allocate_tensor(DType::f32, shape_of(*row.find("scale"))));
    const auto result = fewbit::reorder_w1w3_to_w3w1(weight.tensor.view, scale.tensor.view,
                                                     row.find("dim")->as_int64().value_or(0));
    FEWBIT_TRY(check_row(c, row, result ? Result<void>() : result.error(), causes));
  }
  return Outputs{};
}

}  // namespace fewbit::golden
