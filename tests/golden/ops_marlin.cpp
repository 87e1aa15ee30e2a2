// SPDX-License-Identifier: Apache-2.0
// Building blocks of Marlin's layouts.
#include <numeric>
#include <string>
#include <vector>

#include "golden/ops.hpp"
#include "layout/column_words.hpp"
#include "layout/marlin_codes.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/pack.hpp"
#include "layout/prepare_marlin.hpp"

namespace fewbit::golden {
namespace {

Error wrong(const GoldenCase& c, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), c.name};
}

// int8 and FP8 share their layouts.
Result<MarlinCodes> codes_of(const GoldenCase& c, WordSource source) {
  MarlinCodes codes;
  codes.source = source;
  FEWBIT_TRY(const std::int64_t bits, c.int_param("num_bits"));
  FEWBIT_TRY(const bool act8, c.bool_param("is_a_8bit"));
  codes.bits = static_cast<int>(bits);
  codes.activation = act8 ? MarlinActivation::int8 : MarlinActivation::bits16;
  return codes;
}

PaddedMatrix same_size(Dims dims) { return {.from = dims, .to = dims, .parts_n = 1, .order = {}}; }

Result<Outputs> repack(const GoldenCase& c, WordSource source) {
  FEWBIT_TRY(const MarlinCodes codes, codes_of(c, source));
  Dims dims;
  FEWBIT_TRY(dims.n, c.int_param("size_n"));
  FEWBIT_TRY(dims.k, c.int_param("size_k"));
  FEWBIT_TRY(const Tensor words, c.input("qweight"));
  PaddedMatrix matrix = same_size(dims);
  std::vector<std::int32_t> order;
  if (c.has_input("perm")) {
    FEWBIT_TRY(order, c.values<std::int32_t>("perm"));
    matrix.order = order;
  }
  FEWBIT_TRY(check_marlin_codes(c.name, codes, matrix));
  std::vector<std::byte> tiles(static_cast<std::size_t>(marlin_tile_bytes(dims, codes.bits)));
  marlin_repack(codes, matrix, words.view.bytes, tiles);
  return Outputs{{"packed", tensor_of(DType::i32, {dims.k / 16, dims.n * codes.bits / 2}, tiles)}};
}

// words [..., groups, n * bits / 32], each matrix for itself.
Result<Outputs> zeros(const GoldenCase& c, WordSource source, const Tensor& words) {
  FEWBIT_TRY(const MarlinCodes codes, codes_of(c, source));
  Dims dims;
  FEWBIT_TRY(dims.n, c.int_param("size_n"));
  FEWBIT_TRY(dims.k, c.int_param("groups"));
  std::vector<std::byte> out(words.view.bytes.size());
  const auto bytes = static_cast<std::size_t>(dims.n * dims.k * codes.bits / 8);
  for (std::size_t at = 0; at < out.size(); at += bytes) {
    marlin_zero_points(codes, same_size(dims), words.view.bytes.subspan(at, bytes),
                       std::span(out).subspan(at, bytes));
  }
  return Outputs{{"packed", tensor_of(DType::i32, words.view.shape, out)}};
}

template <int bits>
std::vector<std::byte> words_of(Dims dims, const std::vector<std::int32_t>& codes) {
  std::vector<std::byte> words(static_cast<std::size_t>(ColumnWords<bits>::bytes(dims)));
  pack<ColumnWords<bits>>(
      dims,
      [&](std::int64_t n, std::int64_t k) {
        return codes[static_cast<std::size_t>(k * dims.n + n)];
      },
      words);
  return words;
}

// 16-bit [..., groups, n] in an order.
std::vector<std::byte> permuted(const Tensor& scales, ScaleOrder order, Dims groups) {
  std::vector<std::byte> out(scales.view.bytes.size());
  const auto bytes = static_cast<std::size_t>(groups.n * groups.k * 2);
  for (std::size_t at = 0; at < out.size(); at += bytes) {
    marlin_scales(order, same_size(groups), scales.view.bytes.subspan(at, bytes),
                  std::span(out).subspan(at, bytes));
  }
  return out;
}

}  // namespace

Result<Outputs> gptq_marlin_repack(const GoldenCase& c) { return repack(c, WordSource::gptq); }

Result<Outputs> awq_marlin_repack(const GoldenCase& c) { return repack(c, WordSource::awq); }

Result<Outputs> marlin_zero_points(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::int32_t> codes, c.values<std::int32_t>("zp"));
  FEWBIT_TRY(const std::int64_t bits, c.int_param("num_bits"));
  Dims dims;
  FEWBIT_TRY(dims.n, c.int_param("size_n"));
  FEWBIT_TRY(dims.k, c.int_param("groups"));
  const auto words = bits == 4 ? words_of<4>(dims, codes) : words_of<8>(dims, codes);
  return zeros(c, WordSource::gptq, tensor_of(DType::i32, {dims.k, dims.n * bits / 32}, words));
}

Result<Outputs> awq_to_marlin_zero_points(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor words, c.input("zp_packed"));
  return zeros(c, WordSource::awq, words);
}

Result<Outputs> packed_to_marlin_zero_points(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor words, c.input("zp_packed"));
  return zeros(c, WordSource::gptq, words);
}

Result<Outputs> marlin_permute_scales(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor scales, c.input("scales"));
  FEWBIT_TRY(const std::int64_t k, c.int_param("size_k"));
  FEWBIT_TRY(const std::int64_t group_size, c.int_param("group_size"));
  FEWBIT_TRY(const bool act8, c.bool_param("is_a_8bit"));
  const ScaleOrder order =
      marlin_scale_order(k, group_size, act8 ? MarlinActivation::int8 : MarlinActivation::bits16);
  const Shape& shape = scales.view.shape;
  const Dims groups{.n = shape.back(), .k = shape[shape.size() - 2]};
  return Outputs{
      {"permuted", tensor_of(scales.view.dtype, shape, permuted(scales, order, groups))}};
}

Result<Outputs> marlin_permute_bias(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor bias, c.input("bias"));
  const Shape& shape = bias.view.shape;
  return Outputs{
      {"permuted", tensor_of(bias.view.dtype, shape,
                             permuted(bias, ScaleOrder::single, {.n = shape.back(), .k = 1}))}};
}

Result<Outputs> marlin_act_int8_process_scales(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor scales, c.input("scales"));
  FEWBIT_TRY(std::vector<std::byte> bytes, c.values<std::byte>("scales"));
  const float factor = marlin_act_int8_scales(scales.view.dtype, bytes);
  return Outputs{{"scales", tensor_of(scales.view.dtype, scales.view.shape, bytes)},
                 {"factor", tensor_of(DType::f32, {1}, std::vector<float>{factor})}};
}

Result<Outputs> marlin_moe_padded_intermediate(const GoldenCase& c) {
  const Json* rows = c.params->find("rows");
  if (rows == nullptr || rows->as_array() == nullptr) return wrong(c, "no rows");
  for (const Json& row : *rows->as_array()) {
    const std::int64_t padded =
        marlin_padded_intermediate(row.find("intermediate")->as_int64().value_or(0),
                                   row.find("group_size")->as_int64().value_or(0));
    if (padded != row.find("padded")->as_int64()) {
      return wrong(c, "got " + std::to_string(padded) + ", want " + row.dump());
    }
  }
  return Outputs{};
}

// Every code in its place, without the tiles.
Result<Outputs> marlin_int4_fp8_preprocess(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor words, c.input("qweight"));
  FEWBIT_TRY(const bool with_zeros, c.bool_param("zero_points"));
  const Shape& shape = words.view.shape;
  const Dims dims{.n = shape[1] * 8, .k = shape[0]};
  Tensor zeros;
  Dims zero_dims{.n = dims.n, .k = 1};
  if (with_zeros) {
    FEWBIT_TRY(zeros, c.input("qzeros"));
    zero_dims.k = zeros.view.shape[0];
  }
  std::vector<std::byte> out(words.view.bytes.size());
  unpack<ColumnWords<4>>(
      dims, words.view.bytes, [&](std::int64_t n, std::int64_t k, std::uint64_t code) {
        std::uint64_t zero = marlin_middle;
        if (with_zeros) {
          const std::int64_t group = k / (dims.k / zero_dims.k);
          zero = read_bits<4>(zeros.view.bytes, ColumnWords<4>::place(zero_dims, n, group));
        }
        write_bits<4>(
            out, ColumnWords<4>::place(dims, n, k),
            marlin_fp8_code_as_vllm(static_cast<unsigned>(code), static_cast<unsigned>(zero)));
      });
  return Outputs{{"qweight", tensor_of(DType::i32, shape, out)}};
}

}  // namespace fewbit::golden
