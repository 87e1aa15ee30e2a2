// SPDX-License-Identifier: Apache-2.0
#include "fewbit/tensor.hpp"

#include <array>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

struct DTypeFacts {
  DType dtype;
  int bits;
  std::string_view name;
};

// In the order of the enumeration.
constexpr std::array<DTypeFacts, 33> dtype_facts = {{
    {DType::f64, 64, "f64"},
    {DType::f32, 32, "f32"},
    {DType::f16, 16, "f16"},
    {DType::bf16, 16, "bf16"},
    {DType::f8_e4m3, 8, "f8_e4m3"},
    {DType::f8_e5m2, 8, "f8_e5m2"},
    {DType::f8_e8m0, 8, "f8_e8m0"},
    {DType::f8_e4m3fnuz, 8, "f8_e4m3fnuz"},
    {DType::f8_e5m2fnuz, 8, "f8_e5m2fnuz"},
    {DType::f8_e5m3, 8, "f8_e5m3"},
    {DType::f6_e2m3, 6, "f6_e2m3"},
    {DType::f6_e3m2, 6, "f6_e3m2"},
    {DType::f4_e2m1, 4, "f4_e2m1"},
    {DType::nf3, 3, "nf3"},
    {DType::nf4, 4, "nf4"},
    {DType::boolean, 8, "boolean"},
    {DType::c64, 64, "c64"},
    {DType::i64, 64, "i64"},
    {DType::u64, 64, "u64"},
    {DType::i32, 32, "i32"},
    {DType::u32, 32, "u32"},
    {DType::i16, 16, "i16"},
    {DType::u16, 16, "u16"},
    {DType::i8, 8, "i8"},
    {DType::u8, 8, "u8"},
    {DType::i4, 4, "i4"},
    {DType::u4, 4, "u4"},
    {DType::u1, 1, "u1"},
    {DType::u2, 2, "u2"},
    {DType::u3, 3, "u3"},
    {DType::u5, 5, "u5"},
    {DType::u6, 6, "u6"},
    {DType::u7, 7, "u7"},
}};

constexpr bool in_order() {
  for (std::size_t i = 0; i < dtype_facts.size(); ++i) {
    if (static_cast<std::size_t>(dtype_facts[i].dtype) != i) return false;
  }
  return dtype_facts.back().dtype == DType::u7;
}
static_assert(in_order());

}  // namespace

int dtype_bits(DType dtype) { return dtype_facts[static_cast<std::size_t>(dtype)].bits; }

std::string_view dtype_name(DType dtype) {
  return dtype_facts[static_cast<std::size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeFacts& facts : dtype_facts) {
    if (facts.name == name) return facts.dtype;
  }
  return std::nullopt;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Result<std::int64_t> shape_elements(std::span<const std::int64_t> shape) {
  bool has_zero = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return Error{
          ErrorCode::limit,
          "shape " + shape_text(shape) + " has the negative dimension " + std::to_string(dimension),
          ""};
    }
    has_zero = has_zero || dimension == 0;
  }
  if (has_zero) return std::int64_t{0};
  std::int64_t elements = 1;
  for (const std::int64_t dimension : shape) {
    const std::optional<std::int64_t> product = checked_mul(elements, dimension);
    if (!product) {
      return Error{ErrorCode::limit,
                   "shape " + shape_text(shape) + " has more than 2^63 - 1 elements", ""};
    }
    elements = *product;
  }
  return elements;
}

Result<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape) {
  FEWBIT_TRY(const std::int64_t elements, shape_elements(shape));
  const std::optional<std::uint64_t> bits = checked_mul(
      static_cast<std::uint64_t>(elements), static_cast<std::uint64_t>(dtype_bits(dtype)));
  const std::string what = std::string(dtype_name(dtype)) + " " + shape_text(shape);
  if (!bits) return Error{ErrorCode::limit, what + " has more than 2^64 - 1 bits", ""};
  if (*bits % 8U != 0) {
    return Error{ErrorCode::corrupt,
                 what + " has " + std::to_string(*bits) + " bits, which do not fill whole bytes",
                 ""};
  }
  return *bits / 8U;
}

Result<OwnedTensor> allocate_tensor(DType dtype, Shape shape) {
  FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(dtype, shape));
  FEWBIT_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes));
  const auto owner = std::make_shared<AlignedBuffer>(std::move(buffer));
  OwnedTensor owned;
  owned.bytes = owner->span();
  owned.tensor.view.dtype = dtype;
  owned.tensor.view.shape = std::move(shape);
  owned.tensor.view.bytes = owned.bytes;
  owned.tensor.owner = owner;
  return owned;
}

}  // namespace fewbit
