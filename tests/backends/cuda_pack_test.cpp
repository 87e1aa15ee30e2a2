// SPDX-License-Identifier: Apache-2.0
// What the backend cuda_moe packs on the host, read back by the closed forms of its layouts: every
// weight is the one that the canonical matrix dequantizes to. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "backends/packed_cells.hpp"
#include "canonical/random_gguf_blocks.hpp"
#include "kernels/cuda/nf3_table.hpp"

namespace fewbit::cuda {
namespace {

constexpr std::int64_t hidden = 224;  // its halves end inside a unit; no whole block or group
constexpr std::int64_t inner = 160;

struct Kind {
  const char* name;
  DType weight;
  DType scale;
  Granularity granularity;
  bool zeros;
  bool ordered = false;  // act-order: columns of groups of granularity.cols anywhere
};

Tensor random_bytes(DType dtype, Shape shape, std::mt19937& random) {
  OwnedTensor owned = allocate_tensor(dtype, std::move(shape)).value();
  for (std::byte& b : owned.bytes) b = static_cast<std::byte>(random() >> 8);
  return owned.tensor;
}

// Numbers of both signs between 1/64 and 1/32.
Tensor random_scales(DType dtype, Shape shape, std::mt19937& random) {
  OwnedTensor owned = allocate_tensor(dtype, std::move(shape)).value();
  const std::size_t width = dtype == DType::f32 ? 4 : 2;
  for (std::size_t i = 0; i < owned.bytes.size(); i += width) {
    const float value = std::ldexp(1.0F + static_cast<float>(random() % 64) / 64, -6) *
                        (random() % 5 ? 1.0F : -1.0F);
    const std::uint16_t bits = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (width == 4) {
      std::memcpy(owned.bytes.data() + i, &value, width);
    } else {
      std::memcpy(owned.bytes.data() + i, &bits, width);
    }
  }
  return owned.tensor;
}

// Powers of two between 1/64 and 1/8.
Tensor random_exponents(Shape shape, std::mt19937& random) {
  OwnedTensor owned = allocate_tensor(DType::f8_e8m0, std::move(shape)).value();
  for (std::byte& b : owned.bytes) b = static_cast<std::byte>(121 + random() % 4);
  return owned.tensor;
}

// Numbers of both signs that e4m3 has.
Tensor random_e4m3(Shape shape, std::mt19937& random) {
  OwnedTensor owned = allocate_tensor(DType::f8_e4m3, std::move(shape)).value();
  for (std::byte& b : owned.bytes) {
    b = static_cast<std::byte>(random() >> 8);
    if ((b & std::byte{0x7F}) == std::byte{0x7F}) b ^= std::byte{1};
  }
  return owned.tensor;
}

bool is_unsigned(DType weight) { return weight == DType::u4 || weight == DType::u8; }

QuantizedTensor random_matrix(const Kind& kind, std::int64_t n, std::int64_t k,
                              std::mt19937& random) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme.producer = Producer::compressed_tensors;
  tensor.scheme.weight = kind.weight;
  tensor.scheme.scale = ScaleSpec{};
  tensor.scheme.scale->dtype = kind.scale;
  tensor.scheme.scale->granularity = kind.granularity;
  tensor.scheme.zero_points = kind.zeros;
  if (!kind.zeros && kind.weight == DType::u4) tensor.scheme.zero_point = 8;
  if (!kind.zeros && kind.weight == DType::u8) tensor.scheme.zero_point = 128;
  if (kind.weight == DType::u2) tensor.scheme.zero_point = 1;
  const Shape grid = {parts_of(n, kind.granularity.rows), parts_of(k, kind.granularity.cols)};
  OwnedTensor codes = allocate_tensor(kind.weight, {n, k}).value();
  for (std::byte& b : codes.bytes) {
    b = static_cast<std::byte>(random() >> 8);
    const bool nan = (b & std::byte{0x7F}) == std::byte{0x7F};
    if (kind.weight == DType::f8_e4m3 && nan) b ^= std::byte{1};
  }
  tensor.codes = codes.tensor;
  tensor.scales = kind.scale == DType::f8_e8m0   ? random_exponents(grid, random)
                  : kind.scale == DType::f8_e4m3 ? random_e4m3(grid, random)
                                                 : random_scales(kind.scale, grid, random);
  if (kind.zeros) {
    OwnedTensor zeros =
        allocate_tensor(is_unsigned(kind.weight) ? DType::u8 : DType::i8, grid).value();
    const int count = 1 << dtype_bits(kind.weight);
    for (std::byte& b : zeros.bytes) {
      const int code = static_cast<int>(random()) & (count - 1);
      b = static_cast<std::byte>(is_unsigned(kind.weight) ? code : code - count / 2);
    }
    tensor.zero_points = zeros.tensor;
  }
  tensor.global_scale = 0.75F;
  return tensor;
}

// The group of every column, drawn.
Tensor random_groups(std::int64_t k, std::int64_t group, std::mt19937& random) {
  std::vector<std::int32_t> groups;
  for (std::int64_t i = 0; i < k; ++i) groups.push_back(static_cast<std::int32_t>(i / group));
  std::shuffle(groups.begin(), groups.end(), random);
  OwnedTensor owned = allocate_tensor(DType::i32, {k}).value();
  std::memcpy(owned.bytes.data(), groups.data(), owned.bytes.size());
  return owned.tensor;
}

ExpertWeights random_expert(const Kind& kind, bool gated, std::mt19937& random) {
  ExpertWeights expert;
  if (gated) expert.gate = random_matrix(kind, inner, hidden, random);
  expert.up = random_matrix(kind, inner, hidden, random);
  expert.down = random_matrix(kind, hidden, inner, random);
  if (!kind.ordered) return expert;
  expert.up.g_idx = random_groups(hidden, kind.granularity.cols, random);
  if (gated) expert.gate->g_idx = expert.up.g_idx;
  expert.down.g_idx = random_groups(inner, kind.granularity.cols, random);
  for (QuantizedTensor* tensor : {gated ? &*expert.gate : &expert.up, &expert.up, &expert.down}) {
    tensor->scheme.act_order = ActOrder::group;
  }
  return expert;
}

const std::vector<Kind> kinds = {
    {"GPTQ in groups of 128", DType::u4, DType::f16, {1, 128}, false},
    {"groups of 32", DType::i4, DType::bf16, {1, 32}, false},
    {"AWQ in groups of 64", DType::u4, DType::f16, {1, 64}, true},
    {"signed rows with zero points", DType::i4, DType::bf16, {1, 0}, true},
    {"FP8 in blocks", DType::f8_e4m3, DType::f32, {128, 128}, false},
    {"FP8 in blocks with bf16 scales", DType::f8_e4m3, DType::bf16, {128, 128}, false},
    {"FP8 in rows", DType::f8_e4m3, DType::f32, {1, 0}, false},
    {"FP8 with a scale a tensor", DType::f8_e4m3, DType::f32, {0, 0}, false},
    {"MXFP8", DType::f8_e4m3, DType::f8_e8m0, {1, 32}, false},
    {"GPTQ INT8 in groups of 128", DType::u8, DType::f16, {1, 128}, false},
    {"INT4 in act-order", DType::u4, DType::f16, {1, 32}, false, true},
    {"INT8 in act-order with zero points", DType::i8, DType::bf16, {1, 32}, true, true},
    {"INT8 in rows", DType::i8, DType::bf16, {1, 0}, false},
    {"INT8 in groups of 32 with zero points", DType::u8, DType::f16, {1, 32}, true},
    {"signed INT8 in groups of 64 with zero points", DType::i8, DType::bf16, {1, 64}, true},
    {"BitNet", DType::u2, DType::f32, {0, 0}, false},
    {"ternary with an f16 scale", DType::u2, DType::f16, {0, 0}, false},
    {"ternary in groups of 32", DType::u2, DType::bf16, {1, 32}, false},
    {"ternary in groups of 64", DType::u2, DType::f16, {1, 64}, false},
    {"ternary in groups of 128", DType::u2, DType::f16, {1, 128}, false},
    {"NF3", DType::nf3, DType::f8_e4m3, {1, 32}, false},
    {"NF3 in rows", DType::nf3, DType::f16, {1, 0}, false},
};

TEST(CudaPack, EveryWeightIsTheCanonicalOne) {
  for (const Kind& kind : kinds) {
    for (const bool gated : {true, false}) {
      SCOPED_TRACE(testing::Message() << kind.name << (gated ? "" : ", no gate"));
      std::mt19937 random(7);
      const ExpertWeights expert = random_expert(kind, gated, random);
      const MoeProblem problem = problem_of(expert);
      const Result<Packed> packed = pack_one(problem, expert);
      ASSERT_TRUE(packed) << packed.error().message();
      if (kind.ordered) {
        const auto columns = columns_of(expert.up);
        for (std::int64_t k = 0; k < hidden; ++k) {
          std::int32_t column = -1;
          std::memcpy(&column, packed->share("hidden_order").data() + 4 * k, sizeof(column));
          ASSERT_EQ(column, columns[static_cast<std::size_t>(k)]);
        }
      }
      for (const int matrix : {0, 1}) {
        expect_matrix(problem, *packed, expert, matrix);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// As stored, without a detour over a scheme of their own.
TEST(CudaPack, EveryWeightOfGgufBlocksIsTheDecodedOne) {
  for (const char* name : {"Q4_0", "Q8_0", "MXFP4", "NVFP4", "Q2_0", "PQ2_0", "TQ2_0"}) {
    SCOPED_TRACE(name);
    std::mt19937 random(11);
    const auto blocks = [&](std::int64_t n, std::int64_t k) {
      // Cells have no 2^-127.
      QuantizedTensor tensor = random_gguf_blocks(name, n, k, random, {.least = 1});
      // Exact before or after the block's scale.
      if (tensor.scheme.ggml_type == find_gguf_type("NVFP4")->id) tensor.global_scale = 0.25F;
      return tensor;
    };
    ExpertWeights expert;
    expert.gate = blocks(256, 768);
    expert.up = blocks(256, 768);
    expert.down = blocks(768, 256);
    const MoeProblem problem = problem_of(expert);
    ASSERT_TRUE(moe_refusals(problem, describe_device("sm_90").value()).empty());
    const Result<Packed> packed = pack_one(problem, expert);
    ASSERT_TRUE(packed) << packed.error().message();
    for (const int matrix : {0, 1}) {
      expect_matrix(problem, *packed, expert, matrix);
      if (HasFatalFailure()) return;
    }
  }
}

// Both parts are bf16, and their sum is the magnitude times 10^4, within what f32 rounds of it.
TEST(CudaPack, NF3sMagnitudesAreSumsOfTwoBf16) {
  const std::uint32_t high[2] = {Nf3Table::high01, Nf3Table::high23};
  const std::uint32_t low[2] = {Nf3Table::low01, Nf3Table::low23};
  for (int code = 0; code < 8; ++code) {
    const int stored = cuda_nf3_stored(static_cast<std::uint8_t>(code));
    EXPECT_EQ(cuda_nf3_code(static_cast<std::uint8_t>(stored)), code);
    const auto part = [&](const std::uint32_t(&pairs)[2]) {
      const std::uint32_t pair = pairs[stored % 4 / 2];
      return double{bf16_to_f32(static_cast<std::uint16_t>(pair >> stored % 2 * 16))};
    };
    const double value = (part(high) + part(low)) * (stored >= 4 ? -1 : 1);
    EXPECT_EQ(value, std::round(1e4 * nf3_to_f64(static_cast<std::uint8_t>(code))));
    const double exact = nf3_to_f32(static_cast<std::uint8_t>(code));
    EXPECT_LE(std::abs(value * double{Nf3Table::factor} - exact), std::abs(exact) * 0x1p-23);
  }
}

TEST(CudaPack, SaysWhatItCantHold) {
  std::mt19937 random(8);
  const auto message = [&random](const Kind& kind, const auto& spoil) {
    ExpertWeights expert = random_expert(kind, true, random);
    spoil(expert);
    const Result<Packed> packed = pack_one(problem_of(expert), expert);
    return packed ? std::string() : packed.error().message();
  };
  EXPECT_EQ(message(kinds[2],
                    [](ExpertWeights& expert) {
                      OwnedTensor zeros = allocate_tensor(DType::u8, {hidden, 3}).value();
                      zeros.bytes[5] = std::byte{200};
                      expert.down.zero_points = zeros.tensor;
                    }),
            "layer: zero point 200, expected 0 to 127");
  EXPECT_EQ(message(kinds[0],
                    [&random](ExpertWeights& expert) {
                      expert.up.offsets = random_bytes(DType::f16, {inner, 2}, random);
                    }),
            "layer: offsets beside integer codes");
  const auto ordered =
      std::find_if(kinds.begin(), kinds.end(), [](const Kind& kind) { return kind.ordered; });
  EXPECT_EQ(message(*ordered,
                    [&random](ExpertWeights& expert) {
                      expert.up.g_idx = random_groups(hidden, 32, random);
                    }),
            "layer: gate and up have different act-orders");
  EXPECT_EQ(message(kinds[4],
                    [](ExpertWeights& expert) {
                      OwnedTensor codes = allocate_tensor(DType::f8_e4m3, {hidden, inner}).value();
                      codes.bytes[codes.bytes.size() - 1] = std::byte{0xFF};
                      expert.down.codes = codes.tensor;
                    }),
            "layer: e4m3 codes that are NaN");
}

}  // namespace
}  // namespace fewbit::cuda
