// SPDX-License-Identifier: Apache-2.0
// Element types, shapes and views of tensors. A view borrows, a Tensor shares ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/result.hpp"

namespace fewbit {

// Storage or logical element type. Values and encodings: core/float_convert.hpp.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,      // E4M3FN: no infinity, 0x7f and 0xff are NaN, largest 448
  f8_e5m2,      // IEEE-like, largest 57344
  f8_e8m0,      // byte b is 2^(b-127), 255 is NaN
  f8_e4m3fnuz,  // bias 8, NaN only 0x80, largest 240
  f8_e5m2fnuz,  // bias 16, NaN only 0x80
  f8_e5m3,      // unsigned, bias 15; scales of auto-round's nvfp4_v2
  f6_e2m3,
  f6_e3m2,
  f4_e2m1,  // two codes a byte, low nibble first
  nf3,      // codebook of 8 values
  nf4,      // codebook of 16 values
  boolean,
  c64,
  i64,
  u64,
  i32,
  u32,
  i16,
  u16,
  i8,
  u8,
  i4,
  u4,
  u1,
  u2,
  u3,
  u5,
  u6,
  u7,
};

// Bits of one element: 4 for f4_e2m1, 3 for nf3 and u3, 64 for c64.
int dtype_bits(DType dtype);
// fewbit's name: "bf16", "f8_e4m3".
std::string_view dtype_name(DType dtype);
// Inverse of dtype_name; empty when unknown.
std::optional<DType> dtype_from_name(std::string_view name);

// Row-major, last dimension fastest. An empty shape is a scalar (one element).
using Shape = std::vector<std::int64_t>;
// "[4096, 14336]"
std::string shape_text(std::span<const std::int64_t> shape);
// Product of the dimensions; error `limit` on a negative dimension or past 2^63-1.
Result<std::int64_t> shape_elements(std::span<const std::int64_t> shape);
// Bytes of a dense tensor; error `limit` on overflow, `corrupt` when the bits do not fill bytes.
Result<std::uint64_t> tensor_bytes(DType dtype, std::span<const std::int64_t> shape);

enum class DeviceKind : std::uint8_t { cpu, cuda, xpu };
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
};

// Borrowed memory, row-major, contiguous. Bytes may be unaligned (mapped files): use typed_span or
// memcpy, never a plain cast.
struct TensorView {
  DType dtype = DType::u8;
  Shape shape;
  std::span<const std::byte> bytes;
  Device device;
};

// A view and what keeps its memory alive (a mapped file or an allocation).
struct Tensor {
  TensorView view;
  std::shared_ptr<const void> owner;

  bool empty() const { return owner == nullptr && view.bytes.empty(); }
};

// The bytes of a view as T, when sizeof(T) divides the size and the memory is aligned for T;
// error `invalid_argument` otherwise.
template <class T>
Result<std::span<const T>> typed_span(const TensorView& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.bytes.data());
  if (view.bytes.size() % sizeof(T) != 0 || address % alignof(T) != 0) {
    return Error{ErrorCode::invalid_argument,
                 "tensor of " + std::to_string(view.bytes.size()) +
                     " bytes is not an aligned array of " + std::to_string(sizeof(T)) +
                     "-byte elements",
                 ""};
  }
  return std::span<const T>(reinterpret_cast<const T*>(view.bytes.data()),
                            view.bytes.size() / sizeof(T));
}

// Memory of its own, zeroed, aligned to 64 bytes. Error `limit` when it can't be had.
struct OwnedTensor {
  Tensor tensor;
  std::span<std::byte> bytes;  // the same memory, writable
};
Result<OwnedTensor> allocate_tensor(DType dtype, Shape shape);

}  // namespace fewbit
