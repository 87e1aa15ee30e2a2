// SPDX-License-Identifier: Apache-2.0
#include "core/convert.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

template <float (*decode)(std::uint8_t)>
constexpr std::array<float, 256> values_of_bytes() {
  std::array<float, 256> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode(static_cast<std::uint8_t>(i));
  return values;
}

template <class Code, float (*decode)(Code)>
void decode_all(const std::byte* source, std::span<float> target) {
  if constexpr (sizeof(Code) == 1) {
    static constexpr std::array<float, 256> values = values_of_bytes<decode>();
    for (std::size_t i = 0; i < target.size(); ++i) {
      target[i] = values[std::to_integer<std::size_t>(source[i])];
    }
  } else {
    for (std::size_t i = 0; i < target.size(); ++i) {
      Code code{};
      std::memcpy(&code, source + i * sizeof(Code), sizeof(Code));
      target[i] = decode(code);
    }
  }
}

template <class Code, Code (*encode)(float)>
void encode_all(std::span<const float> source, std::byte* target) {
  for (std::size_t i = 0; i < source.size(); ++i) {
    const Code code = encode(source[i]);
    std::memcpy(target + i * sizeof(Code), &code, sizeof(Code));
  }
}

float f64_to_f32(double x) { return static_cast<float>(x); }
double f32_to_f64(float x) { return static_cast<double>(x); }

using Decode = void (*)(const std::byte*, std::span<float>);
using Encode = void (*)(std::span<const float>, std::byte*);
struct Conversion {
  Decode decode = nullptr;  // nullptr: not a type of this file
  Encode encode = nullptr;
};

template <class Code, float (*decode)(Code), Code (*encode)(float)>
constexpr Conversion conversion = {decode_all<Code, decode>, encode_all<Code, encode>};

Conversion find_conversion(DType dtype) {
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  switch (dtype) {
    case DType::f64:
      return conversion<double, f64_to_f32, f32_to_f64>;
    case DType::f16:
      return conversion<U16, f16_to_f32, f32_to_f16>;
    case DType::bf16:
      return conversion<U16, bf16_to_f32, f32_to_bf16>;
    case DType::f8_e4m3:
      return conversion<U8, f8_e4m3_to_f32, f32_to_f8_e4m3>;
    case DType::f8_e5m2:
      return conversion<U8, f8_e5m2_to_f32, f32_to_f8_e5m2>;
    case DType::f8_e8m0:
      return conversion<U8, f8_e8m0_to_f32, f32_to_f8_e8m0>;
    case DType::f8_e4m3fnuz:
      return conversion<U8, f8_e4m3fnuz_to_f32, f32_to_f8_e4m3fnuz>;
    case DType::f8_e5m2fnuz:
      return conversion<U8, f8_e5m2fnuz_to_f32, f32_to_f8_e5m2fnuz>;
    default:
      return {};
  }
}

Result<void> check_sizes(DType dtype, std::size_t bytes, std::size_t elements) {
  const std::size_t element_bytes = static_cast<std::size_t>(dtype_bits(dtype)) / 8U;
  if (bytes % element_bytes == 0 && bytes / element_bytes == elements) return {};
  return Error{ErrorCode::invalid_argument,
               std::to_string(bytes) + " bytes of " + std::string(dtype_name(dtype)) + " against " +
                   std::to_string(elements) + " elements of f32",
               ""};
}

Error not_convertible(DType dtype) {
  return Error{ErrorCode::unsupported,
               "no conversion between f32 and " + std::string(dtype_name(dtype)), ""};
}

}  // namespace

Result<void> convert_to_f32(DType from, std::span<const std::byte> source,
                            std::span<float> target) {
  const Conversion found = find_conversion(from);
  if (from != DType::f32 && found.decode == nullptr) return not_convertible(from);
  FEWBIT_TRY(check_sizes(from, source.size(), target.size()));
  if (target.empty()) return {};
  if (from == DType::f32) {
    std::memcpy(target.data(), source.data(), source.size());
  } else {
    found.decode(source.data(), target);
  }
  return {};
}

Result<void> convert_from_f32(std::span<const float> source, DType to,
                              std::span<std::byte> target) {
  const Conversion found = find_conversion(to);
  if (to != DType::f32 && found.encode == nullptr) return not_convertible(to);
  FEWBIT_TRY(check_sizes(to, target.size(), source.size()));
  if (source.empty()) return {};
  if (to == DType::f32) {
    std::memcpy(target.data(), source.data(), target.size());
  } else {
    found.encode(source, target.data());
  }
  return {};
}

}  // namespace fewbit
