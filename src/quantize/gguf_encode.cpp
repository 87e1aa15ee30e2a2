// SPDX-License-Identifier: Apache-2.0
#include "quantize/gguf_encode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/convert.hpp"
#include "core/float_types.hpp"
#include "quantize/gguf_encode_blocks.hpp"

namespace fewbit {
namespace {

struct Encoder {
  std::int32_t id = 0;
  std::int32_t elements = 0;
  EncodeGgufBlock* encode = nullptr;
};

constexpr Encoder encoders[] = {
    {2, 32, encode_q4_0},       {3, 32, encode_q4_1},        {6, 32, encode_q5_0},
    {7, 32, encode_q5_1},       {8, 32, encode_q8_0},        {34, 256, encode_tq1_0},
    {35, 256, encode_tq2_0},    {39, 32, encode_mxfp4},      {42, 64, encode_q2_0_64},
    {42, 128, encode_q2_0_128}, {142, 128, encode_q2_0_128}, {143, 128, encode_ptq1_0},
};

EncodeGgufBlock* find_encoder(const GgufType& type) {
  const auto* row = std::find_if(std::begin(encoders), std::end(encoders), [&](const Encoder& e) {
    return e.id == type.id && e.elements == type.elements;
  });
  return row == std::end(encoders) ? nullptr : row->encode;
}

bool is_float(const GgufType& type) { return type.dtype && is_16_or_32_bit_float(*type.dtype); }

Error failure(ErrorCode code, std::string what) {
  return Error{code, std::move(what), "encode_gguf_blocks"};
}

}  // namespace

std::string gguf_encode_refusal(const GgufType& type) {
  if (is_float(type) || find_encoder(type) != nullptr) return "";
  return fmt::format("no encoder for {}", type.name);
}

Result<void> encode_gguf_blocks(const GgufType& type, std::span<const float> values,
                                std::span<std::byte> blocks) {
  if (std::string refusal = gguf_encode_refusal(type); !refusal.empty()) {
    return failure(ErrorCode::unsupported, std::move(refusal));
  }
  if (is_float(type)) return convert_from_f32(values, *type.dtype, blocks);
  const auto block_bytes = static_cast<std::size_t>(type.bytes);
  const auto block_elements = static_cast<std::size_t>(type.elements);
  const std::size_t count = values.size() / block_elements;
  if (values.size() % block_elements != 0 || blocks.size() % block_bytes != 0 ||
      blocks.size() / block_bytes != count) {
    return failure(
        ErrorCode::invalid_argument,
        fmt::format("{} elements and {} bytes, but a block of {} has {} and {}", values.size(),
                    blocks.size(), type.name, block_elements, block_bytes));
  }
  const auto odd = std::find_if_not(values.begin(), values.end(),
                                    [](float value) { return std::isfinite(value); });
  if (odd != values.end()) {
    return failure(ErrorCode::corrupt, fmt::format("element {} is {}", odd - values.begin(), *odd));
  }
  EncodeGgufBlock* const encode = find_encoder(type);
  auto* target = reinterpret_cast<std::uint8_t*>(blocks.data());
  for (std::size_t i = 0; i < count; ++i) {
    const float scale = encode(values.data() + i * block_elements, target + i * block_bytes);
    if (!std::isfinite(f16_to_f32(f32_to_f16(scale)))) {
      return failure(ErrorCode::limit, fmt::format("block {} needs a scale of {}, the largest f16 "
                                                   "is 65504",
                                                   i, scale));
    }
  }
  return {};
}

}  // namespace fewbit
