// SPDX-License-Identifier: Apache-2.0
// What the backend cuda_moe packs on the host, read back by the closed forms of its layouts: every
// weight is the one that the canonical matrix dequantizes to. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "core/float_convert.hpp"
#include "layout/cuda_f8_cells.hpp"
#include "layout/cuda_int_cells.hpp"
#include "layout/pack.hpp"

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

bool is_unsigned(DType weight) { return weight == DType::u4 || weight == DType::u8; }

std::int64_t parts_of(std::int64_t size, std::int64_t each) {
  return each == 0 ? 1 : (size + each - 1) / each;
}

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
  const Shape grid = {parts_of(n, kind.granularity.rows), parts_of(k, kind.granularity.cols)};
  OwnedTensor codes = allocate_tensor(kind.weight, {n, k}).value();
  for (std::byte& b : codes.bytes) {
    b = static_cast<std::byte>(random() >> 8);
    const bool nan = (b & std::byte{0x7F}) == std::byte{0x7F};
    if (kind.weight == DType::f8_e4m3 && nan) b ^= std::byte{1};
  }
  tensor.codes = codes.tensor;
  tensor.scales = kind.scale == DType::f8_e8m0 ? random_exponents(grid, random)
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

// The column at each place: those of group 0, of group 1, …
std::vector<std::int64_t> columns_of(const QuantizedTensor& tensor) {
  std::vector<std::int64_t> out;
  for (std::int64_t g = 0; std::ssize(out) < tensor.k; ++g) {
    for (std::int64_t k = 0; k < tensor.k; ++k) {
      std::int32_t group = 0;
      std::memcpy(&group, tensor.g_idx.view.bytes.data() + 4 * k, sizeof(group));
      if (group == g) out.push_back(k);
    }
  }
  return out;
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

MoeProblem problem_of(const ExpertWeights& expert) {
  MoeProblem problem;
  problem.hidden_size = hidden;
  problem.intermediate_size = inner;
  problem.num_experts = 1;
  problem.gate_up = expert.up.scheme;
  problem.down = expert.down.scheme;
  problem.activation.kind = expert.gate ? Activation::silu : Activation::relu2;
  problem.where = "layer";
  return problem;
}

struct Packed {
  MoePlan plan;
  std::vector<std::vector<std::byte>> memory;
  std::span<const std::byte> share(const char* name) const {
    return memory[static_cast<std::size_t>(plan.index(name))];
  }
  float number(const char* name, std::int64_t i) const {
    float value = 0;
    std::memcpy(&value, share(name).data() + 4 * i, sizeof(value));
    return value;
  }
};

Result<Packed> pack_one(const MoeProblem& problem, const ExpertWeights& expert) {
  Packed packed;
  FEWBIT_TRY(packed.plan, plan_moe(problem));
  std::vector<std::span<std::byte>> to;
  for (const PlannedBuffer& buffer : packed.plan.buffers) {
    packed.memory.emplace_back(buffer.expert_bytes, std::byte{0xA5});
  }
  for (auto& share : packed.memory) to.emplace_back(share);
  FEWBIT_TRY(pack_expert(problem, packed.plan, expert, to));
  return packed;
}

// Of whole matrices [n, k], n the rows of both halves.
template <int bits, int scale_cells, bool zeros>
float int_value(const MoeProblem& problem, std::span<const std::byte> bytes, Dims d, std::int64_t n,
                std::int64_t k, float global) {
  const std::int64_t run = k / (32 * scale_cells);
  const Dims runs{.n = d.n, .k = parts_of(d.k, 32 * scale_cells)};
  const auto stored =
      read_bits<bits>(bytes, CudaIntCodes<bits, scale_cells, zeros>::place(d, n, k));
  const int code =
      bits == 4 ? static_cast<int>(stored) : static_cast<std::int8_t>(static_cast<int>(stored));
  const auto scale = static_cast<std::uint16_t>(
      read_bits<16>(bytes, CudaIntHeader<bits, scale_cells, zeros, false>::place(runs, n, run)));
  int zero = bits == 4 ? 8 : 0;
  if constexpr (zeros) {
    const auto byte = static_cast<int>(
        read_bits<8>(bytes, CudaIntHeader<bits, scale_cells, true, true>::place(runs, n, run)));
    zero = bits == 4 ? byte : static_cast<std::int8_t>(byte);
  }
  const float factor = format_of(problem).f16_scales ? f16_to_f32(scale) : bf16_to_f32(scale);
  return static_cast<float>(code - zero) * (factor * global);
}

template <class Cells, int bit>
unsigned f8_bit(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k) {
  return static_cast<unsigned>(read_bits<1>(bytes, CudaF8CodePlane<bit, Cells>::place(d, n, k)))
         << bit;
}

template <class Cells>
float f8_code(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k) {
  const auto code = [&]<int... bit>(std::integer_sequence<int, bit...> /*all*/) {
    return (f8_bit<Cells, bit>(bytes, d, n, k) | ...);
  }
  (std::make_integer_sequence<int, 8>());
  return f8_e4m3_to_f32(static_cast<std::uint8_t>(code));
}

float mxf8_value(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k,
                 float global) {
  const Dims grid{.n = d.n, .k = d.k / 32};
  const auto scale =
      static_cast<std::uint8_t>(read_bits<8>(bytes, CudaMxF8Scales::place(grid, n, k / 32)));
  return f8_code<CudaMxF8Cells>(bytes, d, n, k) * (f8_e8m0_to_f32(scale) * global);
}

float f8_value(std::span<const std::byte> bytes, Dims d, std::int64_t n, std::int64_t k,
               float global) {
  const std::int64_t rows = d.n / 2;
  const Dims grid{.n = 2 * parts_of(rows, 16), .k = parts_of(d.k, 32)};
  const std::int64_t unit = n / rows * parts_of(rows, 16) + n % rows / 16;
  const auto bits =
      static_cast<std::uint32_t>(read_bits<32>(bytes, CudaF8CellScales::place(grid, unit, k / 32)));
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof(scale));
  return f8_code<CudaF8Cells>(bytes, d, n, k) * (scale * global);
}

float packed_value(const MoeProblem& problem, const Packed& packed, int matrix, Dims d,
                   std::int64_t n, std::int64_t k) {
  const auto bytes = packed.share(matrix == 0 ? "gate_up" : "down");
  const float global = packed.number("global_scales", matrix == 1 ? 2 : n * 2 / d.n);
  const CellFormat format = format_of(problem);
  if (format.kind == CellKind::f8) {
    const std::int64_t row = matrix == 0 ? n : 2 * half1(problem).n + n;
    const float of_row = has_row_scales(problem) ? packed.number("row_scales", row) : 1.0F;
    return f8_value(bytes, d, n, k, of_row * global);
  }
  if (format.kind == CellKind::mxfp8) return mxf8_value(bytes, d, n, k, global);
  const auto value = [&]<int bits>(std::integral_constant<int, bits> /*of a code*/) {
    if (format.ints.scale_cells == 4) {
      return format.ints.zeros ? int_value<bits, 4, true>(problem, bytes, d, n, k, global)
                               : int_value<bits, 4, false>(problem, bytes, d, n, k, global);
    }
    return format.ints.zeros ? int_value<bits, 1, true>(problem, bytes, d, n, k, global)
                             : int_value<bits, 1, false>(problem, bytes, d, n, k, global);
  };
  return format.ints.bits == 4 ? value(std::integral_constant<int, 4>())
                               : value(std::integral_constant<int, 8>());
}

// With act-order, columns stand in the order of their groups and rows of gate and up in that of
// down's columns.
void expect_matrix(const MoeProblem& problem, const Packed& packed, const ExpertWeights& expert,
                   int matrix) {
  const bool two = matrix == 0 && expert.gate.has_value();
  const Dims d{.n = 2 * (matrix == 0 ? half1(problem).n : half2(problem).n),
               .k = matrix == 0 ? hidden : inner};
  const bool ordered = expert.down.scheme.act_order == ActOrder::group;
  const auto rows = ordered && matrix == 0 ? columns_of(expert.down) : std::vector<std::int64_t>();
  std::vector<float> row(static_cast<std::size_t>(d.k));
  for (std::int64_t n = 0; n < d.n; ++n) {
    const QuantizedTensor& from = matrix == 1        ? expert.down
                                  : two && n < inner ? *expert.gate
                                                     : expert.up;
    const auto columns = ordered ? columns_of(from) : std::vector<std::int64_t>();
    const std::int64_t place = two ? n % inner : n;
    ASSERT_TRUE(
        dequantize_rows(from, rows.empty() ? place : rows[static_cast<std::size_t>(place)], row));
    for (std::int64_t k = 0; k < d.k; ++k) {
      const auto column =
          static_cast<std::size_t>(ordered ? columns[static_cast<std::size_t>(k)] : k);
      ASSERT_EQ(packed_value(problem, packed, matrix, d, n, k), row[column])
          << "matrix " << matrix << " row " << n << " k " << k;
    }
  }
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
