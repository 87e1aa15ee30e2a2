// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/checked.hpp"
#include "scheme/fp4.hpp"
#include "scheme/scale_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

std::string text(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape_text(shape));
}

// The scale grid that fits the weight, 16 codes a scale: its last dimension counts bytes of two, in
// a type of codes the codes themselves.
Shape scale_shape(const TensorInfo& weight) {
  Shape shape = weight.shape;
  const std::int64_t units = weight.dtype == DType::f4_e2m1 ? 16 : 8;
  if (!shape.empty()) shape.back() = ceil_div(shape.back(), units);
  return shape;
}

std::int64_t columns_of(const TensorInfo& weight) {
  if (weight.shape.empty()) return 0;
  const std::int64_t a_byte = weight.dtype == DType::f4_e2m1 ? 1 : 2;
  return checked_mul(weight.shape.back(), a_byte).value_or(0);
}

// Another number of columns a scale, where all else is as it should be.
std::string group_text(const TensorInfo& weight, const TensorInfo& scale) {
  const Shape& shape = scale.shape;
  const bool rows = shape.size() == weight.shape.size() && !shape.empty() && shape.back() > 0 &&
                    std::equal(shape.begin(), shape.end() - 1, weight.shape.begin());
  const std::int64_t columns = columns_of(weight);
  if (!rows || columns % shape.back() != 0) return "";
  return fmt::format(", one a group of {} columns", columns / shape.back());
}

void validate_weight(Validation& validation, const Module& module, const TensorInfo& weight) {
  const bool codes = weight.dtype == DType::f4_e2m1;
  if (weight.dtype != DType::u8 && weight.dtype != DType::i8 && !codes) {
    validation.add(module, Level::error, "weight-dtype", weight.name,
                   text(weight.dtype, weight.shape), "u8, two 4-bit codes a byte, or f4_e2m1");
  }
  if (codes && !weight.shape.empty() && weight.shape.back() % 2 != 0) {
    validation.add(module, Level::error, "weight-shape", weight.name,
                   text(weight.dtype, weight.shape), "rows of whole bytes: an even last dimension");
  }
  const std::size_t rank = module.experts > 0 ? 3 : 2;
  if (weight.shape.size() != rank) {
    validation.add(
        module, Level::error, "weight-shape", weight.name, text(weight.dtype, weight.shape),
        fmt::format("[{}rows, columns{}]", rank == 3 ? "experts, " : "", codes ? "" : " / 2"));
  }
}

void validate_scale(Validation& validation, const Module& module, const TensorInfo& weight) {
  const Shape expected = scale_shape(weight);
  const TensorInfo* scale = validation.checkpoint.find(module.part("weight_scale"));
  if (scale == nullptr) {
    validation.add(module, Level::error, "scale-missing", module.name + ".weight_scale",
                   "weight " + text(weight.dtype, weight.shape) + " without weight_scale",
                   text(DType::f8_e4m3, expected));
    return;
  }
  if (scale->dtype != DType::f8_e4m3) {
    validation.add(module, Level::error, "scale-dtype", scale->name,
                   text(scale->dtype, scale->shape), text(DType::f8_e4m3, expected));
  }
  if (scale->shape != expected) {
    validation.add(module, Level::error, "scale-shape", scale->name,
                   text(scale->dtype, scale->shape) + group_text(weight, *scale),
                   fmt::format("{}: one a group of 16 columns, of {}",
                               text(DType::f8_e4m3, expected), columns_of(weight)));
  }
}

void validate_global(Validation& validation, const Module& module) {
  const TensorInfo* global = validation.checkpoint.find(module.part("weight_scale_2"));
  if (global == nullptr) {
    validation.add(module, Level::error, "global-scale-missing", module.name + ".weight_scale_2",
                   module.evidence, "weight_scale_2 f32 []");
    return;
  }
  if (global->dtype != DType::f32) {
    validation.add(module, Level::error, "global-scale-dtype", global->name,
                   text(global->dtype, global->shape), "f32 []");
    return;
  }
  const std::uint64_t count = global->bytes / sizeof(float);
  const bool per_expert = module.experts > 0 && count == static_cast<std::uint64_t>(module.experts);
  if (count != 1 && !per_expert) {
    validation.add(module, Level::error, "global-scale-shape", global->name,
                   text(global->dtype, global->shape),
                   module.experts > 0 ? fmt::format("f32 [] or [{}]", module.experts) : "f32 []");
  }
}

}  // namespace

void validate_nvfp4(Validation& validation, const Module& module) {
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  if (weight == nullptr) return;
  validate_weight(validation, module, *weight);
  validate_scale(validation, module, *weight);
  validate_global(validation, module);
}

}  // namespace fewbit
