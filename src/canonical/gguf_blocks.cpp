// SPDX-License-Identifier: Apache-2.0
#include "canonical/gguf_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "canonical/gguf_decode.hpp"
#include "core/convert.hpp"

namespace fewbit {
namespace {

struct Decoder {
  std::int32_t id = 0;
  std::int32_t elements = 0;
  DecodeGgufBlock* decode = nullptr;
};

constexpr Decoder decoders[] = {
    {2, 32, decode_q4_0},      {3, 32, decode_q4_1},       {6, 32, decode_q5_0},
    {7, 32, decode_q5_1},      {8, 32, decode_q8_0},       {9, 32, decode_q8_1},
    {10, 256, decode_q2_k},    {11, 256, decode_q3_k},     {12, 256, decode_q4_k},
    {13, 256, decode_q5_k},    {14, 256, decode_q6_k},     {15, 256, decode_q8_k},
    {16, 256, decode_iq2_xxs}, {17, 256, decode_iq2_xs},   {18, 256, decode_iq3_xxs},
    {19, 256, decode_iq1_s},   {20, 32, decode_iq4_nl},    {21, 256, decode_iq3_s},
    {22, 256, decode_iq2_s},   {23, 256, decode_iq4_xs},   {29, 256, decode_iq1_m},
    {34, 256, decode_tq1_0},   {35, 256, decode_tq2_0},    {39, 32, decode_mxfp4},
    {40, 64, decode_nvfp4},    {40, 32, decode_q1_0_32},   {41, 128, decode_q1_0},
    {42, 64, decode_q2_0_64},  {42, 128, decode_q2_0_128}, {142, 128, decode_q2_0_128},
    {143, 128, decode_ptq1_0},
};

DecodeGgufBlock* find_decoder(const GgufType& type) {
  const auto* row = std::find_if(std::begin(decoders), std::end(decoders), [&](const Decoder& d) {
    return d.id == type.id && d.elements == type.elements;
  });
  return row == std::end(decoders) ? nullptr : row->decode;
}

template <class T>
void convert_integers(std::span<const std::byte> source, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value{};
    std::memcpy(&value, source.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

Result<void> decode_numbers(DType dtype, std::span<const std::byte> source, std::span<float> out) {
  switch (dtype) {
    case DType::i8:
      convert_integers<std::int8_t>(source, out);
      return {};
    case DType::i16:
      convert_integers<std::int16_t>(source, out);
      return {};
    case DType::i32:
      convert_integers<std::int32_t>(source, out);
      return {};
    case DType::i64:
      convert_integers<std::int64_t>(source, out);
      return {};
    default:
      return convert_to_f32(dtype, source, out);
  }
}

}  // namespace

std::string gguf_decode_refusal(const GgufType& type) {
  if (type.elements == 0) return fmt::format("{} has no known layout", type.name);
  if (type.dtype || find_decoder(type) != nullptr) return "";
  return fmt::format("no decoder for {}", type.name);
}

Result<void> decode_gguf_blocks(const GgufType& type, std::span<const std::byte> blocks,
                                std::span<float> out) {
  if (std::string refusal = gguf_decode_refusal(type); !refusal.empty()) {
    return Error{ErrorCode::unsupported, std::move(refusal), "decode_gguf_blocks"};
  }
  const auto block_bytes = static_cast<std::size_t>(type.bytes);
  const auto block_elements = static_cast<std::size_t>(type.elements);
  const std::size_t count = blocks.size() / block_bytes;
  if (blocks.size() % block_bytes != 0 || out.size() % block_elements != 0 ||
      out.size() / block_elements != count) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} bytes and {} elements, but a block of {} has {} bytes and {} "
                             "elements",
                             blocks.size(), out.size(), type.name, block_bytes, block_elements),
                 "decode_gguf_blocks"};
  }
  if (type.dtype) return decode_numbers(*type.dtype, blocks, out);
  DecodeGgufBlock* const decode = find_decoder(type);
  const auto* source = reinterpret_cast<const std::uint8_t*>(blocks.data());
  for (std::size_t i = 0; i < count; ++i) {
    decode(source + i * block_bytes, out.data() + i * block_elements);
  }
  return {};
}

}  // namespace fewbit
