// SPDX-License-Identifier: Apache-2.0
// Number formats: every code's value, and the code of difficult values.
#include <cstdint>
#include <vector>

#include "core/float_convert.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

template <class To, class From, class Fn>
std::vector<To> map_all(const std::vector<From>& from, Fn fn) {
  std::vector<To> to;
  to.reserve(from.size());
  for (const From value : from) to.push_back(fn(value));
  return to;
}

template <class T>
Tensor flat(DType dtype, const std::vector<T>& values) {
  return tensor_of(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

// Outputs f32, bf16 and f16 of the values, those that the case asks for.
Outputs value_outputs(const GoldenCase& c, const std::vector<float>& values) {
  Outputs out;
  out["f32"] = flat(DType::f32, values);
  if (c.wants("bf16")) out["bf16"] = flat(DType::bf16, map_all<std::uint16_t>(values, f32_to_bf16));
  if (c.wants("f16")) out["f16"] = flat(DType::f16, map_all<std::uint16_t>(values, f32_to_f16));
  return out;
}

template <class Code, float (*decode)(Code)>
Result<Outputs> decode_op(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<Code> codes, c.values<Code>("codes"));
  return value_outputs(c, map_all<float>(codes, decode));
}

template <class Code, DType dtype, Code (*encode)(float)>
Result<Outputs> encode_op(const GoldenCase& c, const char* role) {
  FEWBIT_TRY(const std::vector<float> x, c.values<float>("x"));
  Outputs out;
  out[role] = flat(dtype, map_all<Code>(x, encode));
  return out;
}

template <DType dtype, std::uint8_t (*encode)(float)>
Result<Outputs> encode_codes_op(const GoldenCase& c) {
  return encode_op<std::uint8_t, dtype, encode>(c, "codes");
}

template <DType dtype, std::uint16_t (*encode)(float)>
Result<Outputs> encode_half_op(const GoldenCase& c) {
  return encode_op<std::uint16_t, dtype, encode>(c, "y");
}

std::uint8_t f32_to_f16_to_e4m3(float x) { return f32_to_f8_e4m3(f16_to_f32(f32_to_f16(x))); }

}  // namespace

Result<Outputs> decode_e4m3fn(const GoldenCase& c) {
  return decode_op<std::uint8_t, f8_e4m3_to_f32>(c);
}
Result<Outputs> decode_e5m2(const GoldenCase& c) {
  return decode_op<std::uint8_t, f8_e5m2_to_f32>(c);
}
Result<Outputs> decode_e8m0(const GoldenCase& c) {
  return decode_op<std::uint8_t, f8_e8m0_to_f32>(c);
}
Result<Outputs> decode_fp16(const GoldenCase& c) { return decode_op<std::uint16_t, f16_to_f32>(c); }
Result<Outputs> decode_bf16(const GoldenCase& c) {
  return decode_op<std::uint16_t, bf16_to_f32>(c);
}
Result<Outputs> decode_e2m1(const GoldenCase& c) {
  return decode_op<std::uint8_t, f4_e2m1_to_f32>(c);
}

Result<Outputs> decode_e2m1_bytes(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::uint8_t> bytes, c.values<std::uint8_t>("codes"));
  std::vector<float> values;
  for (const std::uint8_t byte : bytes) {
    values.push_back(f4_e2m1_to_f32(byte & 0xfU));
    values.push_back(f4_e2m1_to_f32(static_cast<std::uint8_t>(byte >> 4)));
  }
  Outputs out;
  out["f32"] = tensor_of(DType::f32, {static_cast<std::int64_t>(bytes.size()), 2}, values);
  return out;
}

Result<Outputs> encode_e4m3fn(const GoldenCase& c) {
  return encode_codes_op<DType::f8_e4m3, f32_to_f8_e4m3>(c);
}
Result<Outputs> encode_e4m3fn_sat(const GoldenCase& c) {
  return encode_codes_op<DType::f8_e4m3, f32_to_f8_e4m3_sat>(c);
}
Result<Outputs> encode_e5m2(const GoldenCase& c) {
  return encode_codes_op<DType::f8_e5m2, f32_to_f8_e5m2>(c);
}
Result<Outputs> encode_e5m2_sat(const GoldenCase& c) {
  return encode_codes_op<DType::f8_e5m2, f32_to_f8_e5m2_sat>(c);
}
Result<Outputs> encode_e8m0(const GoldenCase& c) {
  return encode_codes_op<DType::u8, f32_to_f8_e8m0>(c);
}
Result<Outputs> encode_e8m0_info(const GoldenCase& c) {
  return encode_op<std::uint8_t, DType::u8, f32_to_f8_e8m0_floor>(c, "floor_clamped");
}
Result<Outputs> encode_bf16(const GoldenCase& c) {
  return encode_half_op<DType::bf16, f32_to_bf16>(c);
}
Result<Outputs> encode_fp16(const GoldenCase& c) {
  return encode_half_op<DType::f16, f32_to_f16>(c);
}
Result<Outputs> encode_chain_f16_e4m3(const GoldenCase& c) {
  return encode_codes_op<DType::f8_e4m3, f32_to_f16_to_e4m3>(c);
}

Result<Outputs> encode_e2m1(const GoldenCase& c) {
  FEWBIT_TRY(Outputs out, (encode_codes_op<DType::u8, f32_to_f4_e2m1>(c)));
  FEWBIT_TRY(const std::vector<float> x, c.values<float>("x"));
  out["values"] =
      flat(DType::f32,
           map_all<float>(x, [](float value) { return f4_e2m1_to_f32(f32_to_f4_e2m1(value)); }));
  return out;
}

Result<Outputs> nf3_codebook(const GoldenCase& c) {
  FEWBIT_TRY(const std::vector<std::uint8_t> codes, c.values<std::uint8_t>("codes"));
  Outputs out = value_outputs(c, map_all<float>(codes, nf3_to_f32));
  out["f64"] = flat(DType::f64, map_all<double>(codes, nf3_to_f64));
  return out;
}

}  // namespace fewbit::golden
