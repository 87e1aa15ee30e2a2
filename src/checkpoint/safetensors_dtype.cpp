// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_dtype.hpp"

#include <algorithm>
#include <iterator>

namespace fewbit {
namespace {

struct NamedDType {
  std::string_view name;
  DType dtype;
};

// Ascending rank.
constexpr NamedDType table[] = {
    {"BOOL", DType::boolean},
    {"F4", DType::f4_e2m1},
    {"F6_E2M3", DType::f6_e2m3},
    {"F6_E3M2", DType::f6_e3m2},
    {"U8", DType::u8},
    {"I8", DType::i8},
    {"F8_E5M2", DType::f8_e5m2},
    {"F8_E4M3", DType::f8_e4m3},
    {"F8_E8M0", DType::f8_e8m0},
    {"F8_E4M3FNUZ", DType::f8_e4m3fnuz},
    {"F8_E5M2FNUZ", DType::f8_e5m2fnuz},
    {"I16", DType::i16},
    {"U16", DType::u16},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"I32", DType::i32},
    {"U32", DType::u32},
    {"F32", DType::f32},
    {"C64", DType::c64},
    {"F64", DType::f64},
    {"I64", DType::i64},
    {"U64", DType::u64},
};

}  // namespace

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  const auto* at = std::find_if(std::begin(table), std::end(table),
                                [&](const NamedDType& entry) { return entry.name == name; });
  return at == std::end(table) ? std::nullopt : std::optional(at->dtype);
}

int safetensors_rank(DType dtype) {
  const auto* at = std::find_if(std::begin(table), std::end(table),
                                [&](const NamedDType& entry) { return entry.dtype == dtype; });
  return at == std::end(table) ? -1 : static_cast<int>(at - std::begin(table));
}

std::optional<std::string_view> safetensors_name(DType dtype) {
  const int rank = safetensors_rank(dtype);
  return rank < 0 ? std::nullopt : std::optional(table[rank].name);
}

std::string safetensors_known_names() {
  std::string names;
  for (const NamedDType& entry : table) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

}  // namespace fewbit
