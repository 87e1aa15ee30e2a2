// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_types.hpp"

#include <algorithm>
#include <iterator>

namespace fewbit {
namespace {

constexpr GgufType types[] = {
    {0, "F32", 1, 4, DType::f32},
    {1, "F16", 1, 2, DType::f16},
    {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},
    {4, "Q4_2 (removed)"},
    {5, "Q4_3 (removed)"},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1, DType::i8},
    {25, "I16", 1, 2, DType::i16},
    {26, "I32", 1, 4, DType::i32},
    {27, "I64", 1, 8, DType::i64},
    {28, "F64", 1, 8, DType::f64},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, DType::bf16},
    {31, "Q4_0_4_4 (removed)"},
    {32, "Q4_0_4_8 (removed)"},
    {33, "Q4_0_8_8 (removed)"},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4 (removed)"},
    {37, "IQ4_NL_4_8 (removed)"},
    {38, "IQ4_NL_8_8 (removed)"},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {40, "Q1_0 (32)", 32, 6},
    {41, "Q1_0", 128, 18},
    {42, "Q2_0", 64, 18},
    {42, "Q2_0 (128)", 128, 34},
    {142, "PQ2_0", 128, 34},
    {143, "PTQ1_0", 128, 28},
};

static_assert(std::is_sorted(std::begin(types), std::end(types),
                             [](const GgufType& a, const GgufType& b) { return a.id < b.id; }));

}  // namespace

std::span<const GgufType> gguf_types() { return types; }

std::span<const GgufType> gguf_types_of(std::int32_t id) {
  const auto begin =
      std::lower_bound(std::begin(types), std::end(types), id,
                       [](const GgufType& t, std::int32_t key) { return t.id < key; });
  const auto end = std::find_if(begin, std::end(types), [&](const auto& t) { return t.id != id; });
  return {begin, end};
}

const GgufType* find_gguf_type(std::int32_t id, std::int64_t block_elements) {
  const auto rows = gguf_types_of(id);
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const auto& t) { return t.elements == block_elements; });
  return row == rows.end() ? nullptr : &*row;
}

const GgufType* find_gguf_type(std::string_view name) {
  const auto* row = std::find_if(std::begin(types), std::end(types),
                                 [&](const GgufType& t) { return t.name == name; });
  return row == std::end(types) ? nullptr : row;
}

std::string gguf_type_name(std::int32_t id, std::int64_t block_elements) {
  const GgufType* type = find_gguf_type(id, block_elements);
  const auto rows = gguf_types_of(id);
  if (type == nullptr && !rows.empty()) type = &rows.front();
  return type != nullptr ? std::string(type->name) : "type " + std::to_string(id);
}

}  // namespace fewbit
