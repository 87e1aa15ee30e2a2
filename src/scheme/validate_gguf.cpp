// SPDX-License-Identifier: Apache-2.0
// The scales inside GGUF blocks.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include "checkpoint/gguf_types.hpp"
#include "core/float_convert_f16.hpp"
#include "core/float_convert_scale.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// f16_in_top_nibbles: in those of four u16, lowest first (IQ1_M).
enum class Field { f16, f16_in_top_nibbles, f32, e8m0, ue4m3 };

// Where the scales of a block stand: `count` of them in a row from byte `at`. No weight is above
// `most` scales: the largest code, with the largest of the integer scales inside the block.
struct ScaleField {
  std::int32_t id;
  std::size_t at;
  double most;
  std::size_t count = 1;
  Field field = Field::f16;
};

constexpr ScaleField scale_fields[] = {
    {2, 0, 8},
    {3, 0, 15, 2},
    {6, 0, 16},
    {7, 0, 31, 2},
    {8, 0, 127},
    {9, 0, 127},
    {10, 80, 45, 2},
    {11, 108, 128},
    {12, 0, 945, 2},
    {13, 0, 1953, 2},
    {14, 208, 4096},
    {15, 0, 127, 1, Field::f32},
    {16, 0, 167},
    {17, 0, 167},
    {18, 0, 481},
    {19, 0, 17},
    {20, 0, 127},
    {21, 0, 465},
    {22, 0, 167},
    {23, 0, 4064},
    {29, 48, 17, 1, Field::f16_in_top_nibbles},
    {34, 52, 1},
    {35, 64, 2},
    {39, 0, 6, 1, Field::e8m0},
    {40, 0, 6, 4, Field::ue4m3},
    {41, 0, 1},
    {42, 0, 2},
    {142, 0, 2},
    {143, 26, 1},
};

struct Counts {
  std::uint64_t scales = 0;
  std::uint64_t no_number = 0;  // NaN or infinite
  std::uint64_t sign_bit = 0;   // of a type without a sign
  std::uint64_t zero = 0;
  std::uint64_t read_as_zero = 0;  // NaN as e4m3, but a zero for all who read the blocks
  // Of the magnitudes that are numbers, as bits, which have their order.
  std::uint32_t largest = 0;

  void keep(std::uint32_t magnitude) { largest = std::max(largest, magnitude); }
};

void count_f16(unsigned bits, Counts& counts) {
  const bool number = (bits & 0x7C00U) != 0x7C00U;
  counts.no_number += number ? 0U : 1U;
  if (number) counts.keep(bits & 0x7FFFU);
  counts.zero += (bits & 0x7FFFU) == 0 ? 1U : 0U;
}

void count_scale(Field field, const std::byte* bytes, Counts& counts) {
  ++counts.scales;
  const auto first = std::to_integer<unsigned>(bytes[0]);
  switch (field) {
    case Field::f16:
      count_f16(first | std::to_integer<unsigned>(bytes[1]) << 8, counts);
      break;
    case Field::f16_in_top_nibbles: {
      unsigned bits = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        bits |= (std::to_integer<unsigned>(bytes[2 * i + 1]) >> 4) << 4 * i;
      }
      count_f16(bits, counts);
      break;
    }
    case Field::f32: {
      float value = 0;
      std::memcpy(&value, bytes, sizeof value);
      counts.no_number += std::isfinite(value) ? 0U : 1U;
      if (std::isfinite(value)) counts.keep(std::bit_cast<std::uint32_t>(std::fabs(value)));
      break;
    }
    case Field::e8m0:
      counts.no_number += first == 0xFFU ? 1U : 0U;
      if (first != 0xFFU) counts.keep(first);
      break;
    case Field::ue4m3:
      counts.read_as_zero += first == 0x7FU ? 1U : 0U;
      counts.sign_bit += first >> 7;
      counts.zero += first == 0 ? 1U : 0U;
      if ((first & 0x7FU) != 0x7FU) counts.keep(first & 0x7FU);
      break;
  }
}

std::size_t field_bytes(Field field) {
  return field == Field::f16 ? 2 : field == Field::f32 ? 4 : 1;
}

Counts count_scales(std::span<const std::byte> data, std::size_t block_bytes,
                    const ScaleField& field) {
  Counts counts;
  const std::size_t width = field_bytes(field.field);
  for (std::size_t block = 0; block + block_bytes <= data.size(); block += block_bytes) {
    for (std::size_t i = 0; i < field.count; ++i) {
      count_scale(field.field, data.data() + block + field.at + i * width, counts);
    }
  }
  return counts;
}

double value_of(Field field, std::uint32_t magnitude) {
  switch (field) {
    case Field::f16:
    case Field::f16_in_top_nibbles:
      return f16_to_f32(static_cast<std::uint16_t>(magnitude));
    case Field::f32:
      return std::bit_cast<float>(magnitude);
    case Field::e8m0:
      return f8_e8m0_to_f32(static_cast<std::uint8_t>(magnitude));
    case Field::ue4m3:
      return f8_ue4m3_to_f32(static_cast<std::uint8_t>(magnitude));
  }
  return 0;
}

// The largest weight of MXFP4 blocks: an exponent, and two codes in each of 16 bytes.
double largest_of_mxfp4(std::span<const std::byte> data) {
  constexpr std::size_t block_bytes = 17;
  constexpr double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  double largest = 0;
  for (std::size_t block = 0; block + block_bytes <= data.size(); block += block_bytes) {
    const auto exponent = std::to_integer<std::uint8_t>(data[block]);
    if (exponent == 0xFFU) continue;
    unsigned code = 0;
    for (const std::byte byte : data.subspan(block + 1, block_bytes - 1)) {
      const auto both = std::to_integer<unsigned>(byte);
      code = std::max({code, both & 7U, both >> 4 & 7U});
    }
    largest = std::max(largest, magnitudes[code] * double{f8_e8m0_to_f32(exponent)});
  }
  return largest;
}

// No weight is above `scale` * `most` * `factor`.
struct Sizes {
  double scale = 0;
  double most = 0;
  double factor = 1;
};

Sizes validate_scales(Validation& validation, const Module& module, const TensorInfo& weight) {
  const int id = *module.scheme.ggml_type;
  const auto* const field = std::find_if(std::begin(scale_fields), std::end(scale_fields),
                                         [&](const ScaleField& one) { return one.id == id; });
  if (field == std::end(scale_fields) || !weight.blocks) return {};
  const Tensor tensor = validation.checkpoint.tensor(weight);
  const Counts counts =
      count_scales(tensor.view.bytes, static_cast<std::size_t>(weight.blocks->block_bytes), *field);
  Sizes sizes{value_of(field->field, counts.largest), field->most};
  // The largest code need not stand in the block with the largest scale: what f32 holds is no
  // error.
  const bool too_large = sizes.scale * sizes.most > double{std::numeric_limits<float>::max()};
  if (field->field == Field::e8m0 && too_large) {
    sizes.most = largest_of_mxfp4(tensor.view.bytes) / sizes.scale;
  }
  validation.checkpoint.release(weight);
  const auto add = [&](Level level, const char* rule, std::uint64_t count, const char* what) {
    if (count == 0) return;
    validation.add(module, level, rule, weight.name,
                   fmt::format("{} of {} block scales are {}", count, counts.scales, what),
                   "finite scales", double(count));
  };
  add(Level::error, "scale-nan", counts.no_number, "NaN or infinite");
  add(Level::warning, "scale-negative", counts.sign_bit,
      "signed bytes of an unsigned type, whose sign is ignored");
  if (counts.read_as_zero > 0) {
    add(Level::warning, "scale-zero", counts.read_as_zero,
        "the byte 0x7f, which is read as zero: their weights are erased");
  }
  if (counts.zero == counts.scales) {
    add(Level::warning, "scale-zero", counts.zero, "zero: the tensor is erased");
  }
  return sizes;
}

// The largest of them.
double validate_factor_values(Validation& validation, const Module& module,
                              const TensorInfo& factor) {
  const Tensor tensor = validation.checkpoint.tensor(factor);
  std::vector<float> values(tensor.view.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.view.bytes.data(), values.size() * sizeof(float));
  const auto add = [&](Level level, const char* rule, const char* what, const auto& is_so) {
    const auto count = std::count_if(values.begin(), values.end(), is_so);
    if (count == 0) return;
    validation.add(module, level, rule, factor.name,
                   fmt::format("{} of {} factors are {}", count, values.size(), what),
                   "finite factors above zero", double(count));
  };
  add(Level::error, "scale-nan", "NaN or infinite", [](float x) { return !std::isfinite(x); });
  add(Level::warning, "scale-negative", "negative", [](float x) { return x < 0; });
  add(Level::warning, "scale-zero", "zero: the weights are erased", [](float x) { return x == 0; });
  double largest = 0;
  for (const float x : values) {
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(double{x}));
  }
  return largest;
}

// The weights that scales and factor make.
void validate_size(Validation& validation, const Module& module, const TensorInfo& weight,
                   const TensorInfo* factor, const Sizes& sizes) {
  const double largest = sizes.scale * sizes.most * sizes.factor;
  if (largest <= implausible_weight) return;
  const bool by_factor = factor != nullptr && sizes.factor > 1;
  // Decoded weights are f32 at most.
  const bool too_large = largest > double{std::numeric_limits<float>::max()};
  validation.add(
      module, too_large ? Level::error : Level::warning,
      by_factor ? "global-scale-direction" : "scale-direction",
      by_factor ? factor->name : weight.name,
      fmt::format("weights up to {:g}: block scales up to {:g}{}", largest, sizes.scale,
                  factor != nullptr ? fmt::format(", factor {:g}", sizes.factor) : ""),
      by_factor ? fmt::format("weights below {:g}; {:g} would be plausible the other way round",
                              implausible_weight, 1 / sizes.factor)
                : fmt::format("weights below {:g}", implausible_weight),
      largest);
}

// One f32 for the tensor, or one an expert. Returns the largest, 1 where they are not read.
double validate_factor(Validation& validation, const Module& module, const TensorInfo& factor) {
  const auto elements = shape_elements(factor.shape);
  const bool one = elements && *elements == 1;
  const bool each = elements && module.experts > 0 && *elements == module.experts;
  if (factor.dtype == DType::f32 && (one || each)) {
    if (validation.depth == Depth::headers) return 1;
    return validate_factor_values(validation, module, factor);
  }
  validation.add(module, Level::error, "scale-shape", factor.name,
                 fmt::format("{} {}", dtype_name(factor.dtype), shape_text(factor.shape)),
                 module.experts > 0 ? fmt::format("f32 [1] or [{}]", module.experts) : "f32 [1]");
  return 1;
}

}  // namespace

void validate_gguf(Validation& validation, const Module& module) {
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  if (weight == nullptr) return;
  Sizes sizes;
  if (validation.depth >= Depth::scales) sizes = validate_scales(validation, module, *weight);
  const std::string_view suffix = module.part("scale").empty() ? "weight.scale" : "scale";
  const TensorInfo* factor = validation.checkpoint.find(module.part(suffix));
  if (factor != nullptr) sizes.factor = validate_factor(validation, module, *factor);
  validate_size(validation, module, *weight, factor, sizes);
  constexpr int nvfp4 = 40;
  if (module.scheme.ggml_type == nvfp4 && factor == nullptr) {
    validation.add(module, Level::info, "gguf-factor-missing", weight->name,
                   "NVFP4 blocks without a factor beside them", "one, or blocks for a factor of 1");
  }
}

}  // namespace fewbit
