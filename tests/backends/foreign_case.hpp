// SPDX-License-Identifier: Apache-2.0
// One expert of random 4-bit weights, and its buffers as a backend of another engine packs them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/float_convert.hpp"
#include "select/backend.hpp"
#include "select/problem_list.hpp"

namespace fewbit::test {

inline constexpr std::int64_t hidden = 256;

inline Tensor owned(DType dtype, Shape shape, const std::vector<std::uint8_t>& bytes) {
  OwnedTensor tensor = allocate_tensor(dtype, std::move(shape)).value();
  EXPECT_EQ(tensor.bytes.size(), bytes.size());
  std::memcpy(tensor.bytes.data(), bytes.data(), bytes.size());
  return tensor.tensor;
}

inline std::vector<std::uint8_t> random_bytes(std::int64_t count, std::mt19937& random) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// bf16 scales 2^-i: every rounding to 16 bits is exact.
inline Tensor power_scales(std::int64_t n, std::int64_t groups, std::mt19937& random) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < n * groups; ++i) {
    const std::uint16_t bits = f32_to_bf16(std::ldexp(1.0F, -static_cast<int>(random() % 12)));
    bytes.push_back(static_cast<std::uint8_t>(bits & 0xFFU));
    bytes.push_back(static_cast<std::uint8_t>(bits >> 8U));
  }
  return owned(DType::bf16, {n, groups}, bytes);
}

inline QuantizedTensor integer_matrix(std::int64_t n, std::int64_t k, const Scheme& scheme,
                                      std::mt19937& random) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = scheme;
  tensor.scheme.scale->dtype = DType::bf16;
  const std::int64_t group = scheme.scale->granularity.cols;
  const std::int64_t groups = group == 0 ? 1 : k / group;
  tensor.codes =
      owned(scheme.weight, {n, k}, random_bytes(n * k * dtype_bits(scheme.weight) / 8, random));
  tensor.scales = power_scales(n, groups, random);
  if (scheme.zero_points) {
    auto zeros = random_bytes(n * groups, random);
    for (auto& zero : zeros) zero &= 0xFU;
    tensor.zero_points = owned(DType::u8, {n, groups}, zeros);
  }
  return tensor;
}

// e4m3 scales from 2^-2 to 2^3, so that the packed encoding keeps all of them.
inline QuantizedTensor nvfp4_matrix(std::int64_t n, std::int64_t k, float global,
                                    std::mt19937& random) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = nvfp4_scheme();
  tensor.codes = owned(DType::f4_e2m1, {n, k}, random_bytes(n * k / 2, random));
  auto scales = random_bytes(n * k / 16, random);
  for (auto& scale : scales) scale = static_cast<std::uint8_t>(0x28U + scale % 48U);
  tensor.scales = owned(DType::f8_e4m3, {n, k / 16}, scales);
  tensor.global_scale = global;
  return tensor;
}

// Column i is in group i * step mod the number of groups.
inline Tensor act_order(std::int64_t k, std::int64_t group, int step) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(k) * 4);
  for (std::int64_t i = 0; i < k; ++i) {
    const auto of = static_cast<std::int32_t>(i * step % (k / group));
    std::memcpy(bytes.data() + i * 4, &of, 4);
  }
  return owned(DType::i32, {k}, bytes);
}

struct Case {
  MoeProblem problem;
  ExpertWeights expert;
};

// One expert of both matrices in a named scheme, without weights.
inline Case empty_case(const char* scheme, std::int64_t intermediate, std::int64_t columns) {
  Case c;
  c.problem.hidden_size = columns;
  c.problem.intermediate_size = intermediate;
  c.problem.num_experts = 1;
  c.problem.gate_up = scheme_from_name(scheme).value();
  c.problem.down = c.problem.gate_up;
  return c;
}

inline Case integer_case(const char* scheme, std::int64_t intermediate,
                         std::int64_t columns = hidden) {
  std::mt19937 random(7);
  Case c = empty_case(scheme, intermediate, columns);
  c.problem.gate_up.scale->dtype = DType::bf16;
  c.problem.down = c.problem.gate_up;
  c.expert.gate = integer_matrix(intermediate, columns, c.problem.gate_up, random);
  c.expert.up = integer_matrix(intermediate, columns, c.problem.gate_up, random);
  c.expert.down = integer_matrix(columns, intermediate, c.problem.down, random);
  return c;
}

inline Case nvfp4_case(std::int64_t intermediate, float gate_global) {
  std::mt19937 random(9);
  Case c;
  c.problem.hidden_size = hidden;
  c.problem.intermediate_size = intermediate;
  c.problem.num_experts = 1;
  c.problem.gate_up = nvfp4_scheme();
  c.problem.down = nvfp4_scheme();
  c.expert.gate = nvfp4_matrix(intermediate, hidden, gate_global, random);
  c.expert.up = nvfp4_matrix(intermediate, hidden, 0.25F, random);
  c.expert.down = nvfp4_matrix(hidden, intermediate, 0.75F, random);
  return c;
}

inline void set_biases(Case& c) {
  const auto values = [](std::int64_t n, float first) {
    std::vector<float> bias(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = first + static_cast<float>(i % 64) / 8;
    return bias;
  };
  c.problem.biases = true;
  c.expert.gate_bias = values(c.problem.intermediate_size, 1);
  c.expert.up_bias = values(c.problem.intermediate_size, -16);
  c.expert.down_bias = values(c.problem.hidden_size, 32);
}

// Powers of two as scales, from 2^-27 to 2^4.
inline QuantizedTensor mxfp4_matrix(std::int64_t n, std::int64_t k, const Scheme& scheme,
                                    std::mt19937& random) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = scheme;
  tensor.codes = owned(DType::f4_e2m1, {n, k}, random_bytes(n * k / 2, random));
  auto scales = random_bytes(n * k / 32, random);
  for (auto& scale : scales) scale = static_cast<std::uint8_t>(100U + scale % 32U);
  tensor.scales = owned(DType::f8_e8m0, {n, k / 32}, scales);
  return tensor;
}

// f32 scales that no 16-bit type holds; codes without NaN.
inline QuantizedTensor fp8_matrix(std::int64_t n, std::int64_t k, const Scheme& scheme,
                                  std::mt19937& random) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = scheme;
  auto codes = random_bytes(n * k, random);
  for (auto& code : codes) code &= 0xF7U;
  tensor.codes = owned(DType::f8_e4m3, {n, k}, codes);
  const Granularity grid = scheme.scale->granularity;
  const auto groups = [](std::int64_t size, std::int64_t group) {
    return group == 0 ? 1 : (size + group - 1) / group;
  };
  const Shape shape = {groups(n, grid.rows), groups(k, grid.cols)};
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    const float scale = std::ldexp(1.0F + static_cast<float>(random() % 65536) / 65536.0F, -9);
    std::uint8_t raw[4];
    std::memcpy(raw, &scale, 4);
    bytes.insert(bytes.end(), raw, raw + 4);
  }
  tensor.scales = owned(DType::f32, shape, bytes);
  return tensor;
}

inline QuantizedTensor plain_matrix(std::int64_t n, std::int64_t k, const Scheme& scheme,
                                    std::mt19937& random) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = scheme;
  tensor.codes = owned(scheme.weight, {n, k}, random_bytes(n * k * 2, random));
  return tensor;
}

// A named float scheme with random weights; NVFP4's three global scales are one.
inline Case float_case(const char* scheme, std::int64_t intermediate,
                       std::int64_t columns = hidden) {
  std::mt19937 random(11);
  Case c = empty_case(scheme, intermediate, columns);
  const auto matrix = [&](std::int64_t n, std::int64_t k) {
    const Scheme& of = c.problem.gate_up;
    if (!of.scale) return plain_matrix(n, k, of, random);
    if (of.weight == DType::f8_e4m3) return fp8_matrix(n, k, of, random);
    if (of.scale->dtype == DType::f8_e8m0) return mxfp4_matrix(n, k, of, random);
    QuantizedTensor tensor = nvfp4_matrix(n, k, 0.25F, random);
    tensor.scheme = of;
    return tensor;
  };
  c.expert.gate = matrix(intermediate, columns);
  c.expert.up = matrix(intermediate, columns);
  c.expert.down = matrix(columns, intermediate);
  return c;
}

// One expert's buffers, filled with 0xFF before.
struct Packed {
  MoePlan plan;
  std::vector<std::vector<std::byte>> shares;

  std::span<const std::byte> bytes(const char* name) const {
    EXPECT_GE(plan.index(name), 0) << name;
    return shares[static_cast<std::size_t>(plan.index(name))];
  }
  template <class T>
  T at(const char* name, std::int64_t index) const {
    T value{};
    const auto all = bytes(name);
    EXPECT_LE((static_cast<std::size_t>(index) + 1) * sizeof(T), all.size()) << name;
    std::memcpy(&value, all.data() + static_cast<std::size_t>(index) * sizeof(T), sizeof value);
    return value;
  }
  int nibble(const char* name, std::int64_t byte, bool high) const {
    return at<std::uint8_t>(name, byte) >> (high ? 4 : 0) & 0xF;
  }
};

inline Result<Packed> pack(const char* backend, const Case& c) {
  const Backend& row = *find_backend(backend);
  EXPECT_EQ(row.open_moe, nullptr);
  Packed packed;
  FEWBIT_TRY(packed.plan, row.plan_moe(c.problem, c.expert));
  std::vector<std::span<std::byte>> spans;
  for (const PlannedBuffer& buffer : packed.plan.buffers) {
    packed.shares.emplace_back(static_cast<std::size_t>(buffer.expert_bytes), std::byte{0xFF});
  }
  for (auto& share : packed.shares) spans.emplace_back(share);
  FEWBIT_TRY(row.pack_expert(c.problem, packed.plan, c.expert, spans));
  return packed;
}

// What taking the shares apart again finds.
inline std::string undone(const char* backend, const Case& c, const Packed& packed) {
  const Backend& row = *find_backend(backend);
  EXPECT_NE(row.undo_expert, nullptr) << backend;
  std::vector<std::span<const std::byte>> spans(packed.shares.begin(), packed.shares.end());
  const auto result = row.undo_expert(c.problem, packed.plan, c.expert, spans);
  return result ? "the same" : result.error().message();
}

inline std::string error_of(const char* backend, const Case& c) {
  const auto packed = pack(backend, c);
  return packed ? "no error" : packed.error().message();
}

// Nibble of element (n, k) in 16 x 64 tiles.
inline int tile_code(const Packed& packed, const char* name, std::int64_t rows, std::int64_t n,
                     std::int64_t k) {
  const std::int64_t x = n % 64;
  const std::int64_t word =
      (k / 16 * (rows / 64) + n / 64) * 128 + 16 * (x % 8) + 4 * (k % 8 / 2) + x / 16;
  const std::int64_t slot = 4 * (k % 2) + 2 * (x / 8 % 2) + k % 16 / 8;
  return packed.nibble(name, word * 4 + slot / 2, slot % 2 == 1);
}

// Place of column n in a row of scales of several groups.
inline std::int64_t grouped(std::int64_t n) { return n / 64 * 64 + 8 * (n % 8) + n % 64 / 8; }

inline int code_at(const QuantizedTensor& tensor, std::int64_t n, std::int64_t k) {
  const auto index = static_cast<std::size_t>((n * tensor.k + k) / 2);
  return std::to_integer<int>(tensor.codes.view.bytes[index]) >> (k % 2 == 0 ? 0 : 4) & 0xF;
}

inline float scale_at(const QuantizedTensor& tensor, std::int64_t n, std::int64_t group) {
  const std::int64_t groups = tensor.scales.view.shape[1];
  const auto index = static_cast<std::size_t>(n * groups + group);
  const auto bytes = tensor.scales.view.bytes;
  if (tensor.scales.view.dtype == DType::f8_e4m3) {
    return f8_e4m3_to_f32(std::to_integer<std::uint8_t>(bytes[index]));
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + index * 2, 2);
  return bf16_to_f32(bits);
}

// Row r of gate upon up, each padded to `padded` rows; nullptr: padding.
struct Row {
  const QuantizedTensor* matrix = nullptr;
  std::int64_t n = 0;
};
inline Row w13_row(const Case& c, std::int64_t r, std::int64_t padded) {
  const std::int64_t n = r % padded;
  if (n >= c.problem.intermediate_size) return {};
  return {r < padded ? &*c.expert.gate : &c.expert.up, n};
}

}  // namespace fewbit::test
