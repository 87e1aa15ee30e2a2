// SPDX-License-Identifier: Apache-2.0
// Building blocks of weight preparation: tiles, scale grids, swizzles, row orders.
#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "core/float_convert.hpp"
#include "golden/ops.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/pack.hpp"
#include "layout/row_order.hpp"
#include "layout/scale_grid.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit::golden {
namespace {

Error wrong(const GoldenCase& c, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), c.name};
}

// The last two dimensions, and how many matrices lie before them.
struct Batch {
  std::int64_t count = 1;
  Dims dims;
};

Result<Batch> batch_of(const GoldenCase& c, const Tensor& tensor) {
  const Shape& shape = tensor.view.shape;
  if (shape.size() < 2) return wrong(c, "shape " + shape_text(shape) + " is no matrix");
  Batch batch{.count = 1, .dims = {.n = shape[shape.size() - 2], .k = shape.back()}};
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) batch.count *= shape[i];
  return batch;
}

std::uint64_t byte_at(std::span<const std::byte> bytes, std::int64_t index) {
  return std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(index)]);
}

// Bytes [..., rows, cols] -> the padded, swizzled grids, which must unpack to the same bytes.
Result<std::vector<std::byte>> swizzle(const GoldenCase& c, const Tensor& plain) {
  FEWBIT_TRY(const Batch batch, batch_of(c, plain));
  const Dims d = batch.dims;
  const auto grid_bytes = static_cast<std::size_t>(Swizzle128x4<8>::bytes(d));
  std::vector<std::byte> out(grid_bytes * static_cast<std::size_t>(batch.count));
  for (std::int64_t b = 0; b < batch.count; ++b) {
    const auto in = plain.view.bytes.subspan(static_cast<std::size_t>(b * d.n * d.k));
    const auto grid = std::span(out).subspan(static_cast<std::size_t>(b) * grid_bytes, grid_bytes);
    pack<Swizzle128x4<8>>(
        d, [&](std::int64_t n, std::int64_t k) { return byte_at(in, n * d.k + k); }, grid);
    bool same = true;
    unpack<Swizzle128x4<8>>(d, grid, [&](std::int64_t n, std::int64_t k, std::uint64_t byte) {
      same = same && byte == byte_at(in, n * d.k + k);
    });
    if (!same) return wrong(c, "the swizzled grid does not unpack to its source");
  }
  return out;
}

Result<Outputs> swizzled_output(const GoldenCase& c, const char* input, const char* output) {
  FEWBIT_TRY(const Tensor plain, c.input(input));
  FEWBIT_TRY(const Batch batch, batch_of(c, plain));
  FEWBIT_TRY(const std::vector<std::byte> grids, swizzle(c, plain));
  Shape shape = plain.view.shape;
  const Dims padded = Swizzle128x4<8>::padded(batch.dims);
  shape[shape.size() - 2] = padded.n;
  shape.back() = padded.k;
  return Outputs{{output, tensor_of(plain.view.dtype, shape, grids)}};
}

// Exchanges the two halves of the rows of every matrix.
Result<Tensor> swap_halves(const GoldenCase& c, const char* input) {
  FEWBIT_TRY(const Tensor in, c.input(input));
  FEWBIT_TRY(const Batch batch, batch_of(c, in));
  const RowRotation rows = to_gate_up(batch.dims.n, Gating::gated, W13Order::up_gate);
  std::vector<std::byte> out(in.view.bytes.size());
  const std::size_t bytes = out.size() / static_cast<std::size_t>(batch.count);
  for (std::size_t b = 0; b < static_cast<std::size_t>(batch.count); ++b) {
    reorder_rows(rows, in.view.bytes.subspan(b * bytes, bytes),
                 std::span(out).subspan(b * bytes, bytes));
  }
  return tensor_of(in.view.dtype, in.view.shape, out);
}

Result<void> check_list(const GoldenCase& c, const char* key,
                        std::int64_t (*source)(std::int64_t)) {
  const Json* list = c.params->find(key);
  if (list == nullptr || list->as_array() == nullptr) return wrong(c, std::string("no ") + key);
  std::int64_t position = 0;
  for (const Json& want : *list->as_array()) {
    if (want.as_int64() != source(position)) {
      return wrong(c, std::string(key) + "[" + std::to_string(position) + "]: got " +
                          std::to_string(source(position)) + ", want " + want.dump());
    }
    ++position;
  }
  return {};
}

}  // namespace

Result<Outputs> b12x_repack_4bit(const GoldenCase& c) {
  FEWBIT_TRY(const std::int64_t k, c.int_param("size_k"));
  FEWBIT_TRY(const std::int64_t n, c.int_param("size_n"));
  FEWBIT_TRY(const std::vector<std::uint32_t> words, c.values<std::uint32_t>("qweight"));
  const Dims dims{.n = n, .k = k};
  if (!B12xPacked::accepts(dims) || std::ssize(words) != k / 8 * n) {
    return wrong(c, "words do not fill whole tiles");
  }
  std::vector<std::byte> packed(static_cast<std::size_t>(B12xPacked::bytes(dims)));
  pack<B12xPacked>(
      dims,
      [&](std::int64_t row, std::int64_t col) {
        return words[static_cast<std::size_t>(col / 8 * n + row)] >> (4 * (col % 8)) & 15U;
      },
      packed);
  return Outputs{{"packed", tensor_of(DType::i32, {k / 16, 2 * n}, packed)}};
}

Result<Outputs> b12x_permute_packed_scales(const GoldenCase& c) {
  FEWBIT_TRY(const std::int64_t k, c.int_param("size_k"));
  FEWBIT_TRY(const std::int64_t group, c.int_param("group_size"));
  FEWBIT_TRY(const std::int64_t n, c.int_param("size_n"));
  FEWBIT_TRY(const std::vector<std::int32_t> scales, c.values<std::int32_t>("scales"));
  const auto padded = c.int_param("output_size_n");  // null: n
  const auto columns = static_cast<std::size_t>(n);
  const auto out_columns = padded ? static_cast<std::size_t>(*padded) : columns;
  const std::size_t rows = scales.size() / columns;
  std::vector<std::int32_t> out(rows * out_columns);
  for (std::size_t row = 0; row < rows; ++row) {
    permute_scale_row<std::int32_t>(scale_order(k, group),
                                    std::span(scales).subspan(row * columns, columns),
                                    std::span(out).subspan(row * out_columns, out_columns));
  }
  const Shape shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(out_columns)};
  return Outputs{{"permuted", tensor_of(DType::i32, shape, out)}};
}

Result<Outputs> b12x_process_nvfp4_packed_scales(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor scales, c.input("scales"));
  FEWBIT_TRY(const std::vector<std::uint16_t> bits, c.values<std::uint16_t>("scales"));
  FEWBIT_TRY(const double factor, c.number_param("scale_factor"));
  std::vector<std::uint8_t> bytes(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float scale =
        scales.view.dtype == DType::bf16 ? bf16_to_f32(bits[i]) : f16_to_f32(bits[i]);
    const auto place = static_cast<std::size_t>(swap12(static_cast<std::int64_t>(i)));
    bytes[place] = nvfp4_scale_byte(scale, static_cast<float>(factor));
  }
  return Outputs{{"bytes", tensor_of(DType::f8_e4m3, scales.view.shape, bytes)}};
}

Result<Outputs> b12x_nvfp4_scale_factor_table(const GoldenCase& c) {
  const Json* rows = c.params->find("rows");
  if (rows == nullptr || rows->as_array() == nullptr) return wrong(c, "no rows");
  for (const Json& row : *rows->as_array()) {
    const auto number = [&](const char* key) {
      const Json* value = row.find(key);
      return value == nullptr ? -1.0 : value->as_double().value_or(-1.0);
    };
    const auto max = static_cast<float>(number("max_scale"));
    if (static_cast<double>(nvfp4_scale_factor(max, DType::bf16)) != number("bf16_factor") ||
        static_cast<double>(nvfp4_scale_factor(max, DType::f16)) != number("fp16_factor")) {
      return wrong(c, "factor of max_scale " + std::to_string(max) + ": got " +
                          std::to_string(nvfp4_scale_factor(max, DType::bf16)) + ", row " +
                          row.dump());
    }
  }
  return Outputs{};
}

Result<Outputs> block_scale_swizzle_128x4(const GoldenCase& c) {
  return swizzled_output(c, "plain", "swizzled");
}

Result<Outputs> swizzle_blockscale(const GoldenCase& c) {
  return swizzled_output(c, "scale", "swizzled");
}

Result<Outputs> block_scale_interleave(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor plain, c.input("sf"));
  FEWBIT_TRY(const std::vector<std::byte> grids, swizzle(c, plain));
  return Outputs{{"flat", tensor_of(DType::u8, {std::ssize(grids)}, grids)}};
}

Result<Outputs> reorder_w13_to_gate_up(const GoldenCase& c) {
  FEWBIT_TRY(Tensor w13, swap_halves(c, "w13"));
  FEWBIT_TRY(Tensor w13_scale, swap_halves(c, "w13_scale"));
  return Outputs{{"w13", std::move(w13)}, {"w13_scale", std::move(w13_scale)}};
}

Result<Outputs> swap_w13_to_w31(const GoldenCase& c) {
  FEWBIT_TRY(Tensor y, swap_halves(c, "x"));
  return Outputs{{"y", std::move(y)}};
}

Result<Outputs> scale_perms(const GoldenCase& c) {
  FEWBIT_TRY(check_list(c, "scale_perm", grouped_source));
  FEWBIT_TRY(check_list(c, "scale_perm_single", single_source));
  return Outputs{};
}

}  // namespace fewbit::golden
