// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_nf3.hpp"

#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "layout/check_tensor.hpp"
#include "layout/nf3_packed.hpp"
#include "layout/nf3_scale.hpp"
#include "layout/parallel_ranges.hpp"
#include "layout/repack_experts.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t group = 32;

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

struct Part {
  std::string name;
  const Nf3Matrix& matrix;
  Dims dims;
  std::int64_t experts;
};

std::string grid_text(const Part& part, std::int64_t index) {
  const std::int64_t row = index / part.dims.k;
  return "expert " + std::to_string(row / part.dims.n) + " row " +
         std::to_string(row % part.dims.n) + " column " + std::to_string(index % part.dims.k);
}

Result<void> check_part(const Part& part) {
  const Shape shape = {part.experts, part.dims.n, part.dims.k};
  const DType dtype = part.matrix.codes.dtype;
  const bool integer =
      dtype == DType::u8 || dtype == DType::i8 || dtype == DType::i32 || dtype == DType::i64;
  if (!integer) {
    return bad(part.name + " codes",
               "dtype " + std::string(dtype_name(dtype)) + ", expected u8, i8, i32 or i64");
  }
  FEWBIT_TRY(check_tensor(part.name + " codes", part.matrix.codes, dtype, shape));
  if (part.dims.n % 64 != 0 || part.dims.k % group != 0) {
    return bad(part.name + " codes", "n x k is " + std::to_string(part.dims.n) + " x " +
                                         std::to_string(part.dims.k) +
                                         ", expected multiples of 64 and 32");
  }
  if (!Nf3Packed::accepts(part.dims, part.matrix.tile_n)) {
    return bad(part.name + " tile_n", std::to_string(part.matrix.tile_n) +
                                          ", expected a multiple of 64 that divides n " +
                                          std::to_string(part.dims.n));
  }
  return check_tensor(part.name + " scales", part.matrix.scales, DType::f32,
                      {part.experts, part.dims.n, part.dims.k / group});
}

template <class T>
std::int64_t load_as(std::span<const std::byte> bytes, std::int64_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * static_cast<std::int64_t>(sizeof value), sizeof value);
  return static_cast<std::int64_t>(value);
}

std::int64_t code_at(const TensorView& codes, std::int64_t index) {
  switch (codes.dtype) {
    case DType::i8:
      return load_as<std::int8_t>(codes.bytes, index);
    case DType::i32:
      return load_as<std::int32_t>(codes.bytes, index);
    case DType::i64:
      return load_as<std::int64_t>(codes.bytes, index);
    default:
      return load_as<std::uint8_t>(codes.bytes, index);
  }
}

float scale_at(const Part& part, std::int64_t index) {
  float scale = 0.0F;
  std::memcpy(&scale, part.matrix.scales.bytes.data() + index * std::int64_t{sizeof scale},
              sizeof scale);
  return scale;
}

// The codes as bytes; whether all are 0 to 7.
template <class T>
bool narrow(std::span<const std::byte> stored, std::span<std::uint8_t> codes) {
  T seen = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    T code{};
    std::memcpy(&code, stored.data() + i * sizeof code, sizeof code);
    seen = static_cast<T>(seen | code);
    codes[i] = static_cast<std::uint8_t>(code);
  }
  return (seen & ~T{7}) == 0;
}

bool narrow_codes(DType dtype, std::span<const std::byte> stored, std::span<std::uint8_t> codes) {
  if (dtype == DType::i32) return narrow<std::int32_t>(stored, codes);
  if (dtype == DType::i64) return narrow<std::int64_t>(stored, codes);
  return narrow<std::uint8_t>(stored, codes);  // i8 too: a negative one has its high bit
}

Result<void> refuse_codes(const Part& part) {
  for (std::int64_t index = 0;; ++index) {
    const std::int64_t code = code_at(part.matrix.codes, index);
    if (code < 0 || code > 7) {
      return bad(part.name + " codes",
                 grid_text(part, index) + " is " + std::to_string(code) + ", expected 0 to 7");
    }
  }
}

// Some rows at a time, checked and narrowed while they are in the caches.
Result<void> pack_codes(const Part& part, std::span<std::byte> words, Executor& executor) {
  constexpr std::int64_t rows = 64;
  const TensorView& codes = part.matrix.codes;
  const Nf3Packer packer(part.dims, part.matrix.tile_n);
  const std::int64_t strips = part.dims.n / rows;
  const std::size_t strip_codes = static_cast<std::size_t>(rows * part.dims.k);
  const std::size_t strip_bytes =
      codes.bytes.size() / static_cast<std::size_t>(part.experts * strips);
  const std::int64_t expert_words = Nf3Packed::bytes(part.dims);
  std::atomic<bool> allowed = true;
  parallel_ranges(executor, part.experts * strips, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> narrowed(strip_codes);
    Nf3Planes planes(part.dims.k);
    for (std::int64_t i = begin; i < end; ++i) {
      const auto stored =
          codes.bytes.subspan(static_cast<std::size_t>(i) * strip_bytes, strip_bytes);
      if (!narrow_codes(codes.dtype, stored, narrowed)) allowed = false;
      const std::int64_t first = i % strips * rows;
      packer.pack_rows(first, first + rows, narrowed.data(),
                       words.data() + i / strips * expert_words, planes);
    }
  });
  return allowed ? Result<void>() : refuse_codes(part);
}

Result<void> check_scales(const Part& part) {
  const std::int64_t count = part.experts * part.dims.n * part.dims.k / group;
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = scale_at(part, i);
    if (!(scale < nf3_scale_end)) {
      return bad(part.name + " scales", grid_text(part, i * group) + " has " +
                                            std::to_string(scale) + ", expected below 32");
    }
  }
  return {};
}

// Encodes rows of scales and puts them into the order of the kernels.
void pack_scales(const Part& part, Nf3ScaleRounding rounding, std::span<std::byte> out,
                 Nf3MatrixResult& result, Executor& executor) {
  const Dims grid{.n = part.dims.n, .k = part.dims.k / group};
  std::vector<std::byte> encoded(static_cast<std::size_t>(grid.n * grid.k));
  for (std::int64_t expert = 0; expert < part.experts; ++expert) {
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      const float scale = scale_at(part, expert * grid.n * grid.k + static_cast<std::int64_t>(i));
      if (scale != 0.0F && scale < nf3_smallest_scale) ++result.raised_scales;
      if (scale < 0.0F) ++result.negative_scales;
      encoded[i] = std::byte{nf3_scale_byte(scale, rounding)};
    }
    const auto to = out.subspan(static_cast<std::size_t>(expert) * encoded.size(), encoded.size());
    constexpr Dims block{.n = 64, .k = 64};
    scale_order(part.dims.k, group) == ScaleOrder::grouped
        ? repack_experts<RowMajor<8>, GroupedByteScales>(1, grid, encoded, to, executor, block)
        : repack_experts<RowMajor<8>, SingleByteScales>(1, grid, encoded, to, executor, block);
  }
}

Result<Nf3MatrixResult> prepare_part(const Part& part, Nf3ScaleRounding rounding,
                                     Executor& executor) {
  FEWBIT_TRY(check_scales(part));
  FEWBIT_TRY(OwnedTensor words,
             allocate_tensor(DType::i32, {part.experts, Nf3Packed::bytes(part.dims) / 4}));
  FEWBIT_TRY(OwnedTensor scales,
             allocate_tensor(DType::u8, {part.experts, part.dims.k / group, part.dims.n}));
  FEWBIT_TRY(OwnedTensor globals, allocate_tensor(DType::f32, {part.experts}));
  Nf3MatrixResult result;
  FEWBIT_TRY(pack_codes(part, words.bytes, executor));
  pack_scales(part, rounding, scales.bytes, result, executor);
  for (std::size_t at = 0; at < globals.bytes.size(); at += sizeof(float)) {
    std::memcpy(globals.bytes.data() + at, &nf3_global_scale, sizeof(float));
  }
  result.words = words.tensor;
  result.scales = scales.tensor;
  result.global_scales = globals.tensor;
  result.tile_n = part.matrix.tile_n;
  return result;
}

}  // namespace

Result<void> unpack_nf3(const Nf3MatrixResult& matrix, std::int64_t expert,
                        std::span<std::uint8_t> codes) {
  const Shape& grid = matrix.scales.view.shape;
  const std::int64_t experts = grid.size() == 3 ? grid[0] : 0;
  if (expert < 0 || expert >= experts) {
    return bad("expert", std::to_string(expert) + " of " + std::to_string(experts));
  }
  const Dims dims{.n = grid[2], .k = grid[1] * group};
  if (std::ssize(codes) != dims.n * dims.k) {
    return bad("codes",
               std::to_string(codes.size()) + ", expected " + std::to_string(dims.n * dims.k));
  }
  const auto bytes = static_cast<std::size_t>(Nf3Packed::bytes(dims));
  const auto words =
      matrix.words.view.bytes.subspan(static_cast<std::size_t>(expert) * bytes, bytes);
  unpack_nf3(dims, matrix.tile_n, words, codes);
  return {};
}

Result<Nf3Result> prepare_nf3(const Nf3Input& input, Executor& executor) {
  if (input.activation_dtype != DType::bf16) {
    return bad("activation dtype",
               std::string(dtype_name(input.activation_dtype)) + ", NF3 kernels have bf16 only");
  }
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  const Shape& shape = input.w13.codes.shape;
  if (shape.size() != 3 || shape[0] <= 0) {
    return bad("w13 codes",
               "shape " + shape_text(shape) + ", expected [experts, n, k] and an expert");
  }
  const std::int64_t halves = input.gating == Gating::gated ? 2 : 1;
  const Part w13{.name = "w13",
                 .matrix = input.w13,
                 .dims = {.n = halves * input.intermediate_size, .k = input.hidden_size},
                 .experts = shape[0]};
  const Part w2{.name = "w2",
                .matrix = input.w2,
                .dims = {.n = input.hidden_size, .k = input.intermediate_size},
                .experts = shape[0]};
  FEWBIT_TRY(check_part(w13));
  FEWBIT_TRY(check_part(w2));
  Nf3Result result;
  FEWBIT_TRY(result.w13, prepare_part(w13, input.rounding, executor));
  FEWBIT_TRY(result.w2, prepare_part(w2, input.rounding, executor));
  return result;
}

}  // namespace fewbit
