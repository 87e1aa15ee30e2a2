// SPDX-License-Identifier: Apache-2.0
// What repacking takes beside its source and its result.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "fewbit/layouts.hpp"
#include "layout/counting_memory.hpp"
#include "layout/prepare_cpu_int4.hpp"
#include "layout/prepare_marlin.hpp"
#include "layout/prepare_trtllm.hpp"
#include "layout/prepare_xpu.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t experts = 64;
constexpr std::int64_t size = 2048;
constexpr std::int64_t code_bytes = size * size / 2;    // of an expert
constexpr std::int64_t scale_bytes = size * size / 16;  // of an expert
constexpr std::int64_t expert_bytes = code_bytes + scale_bytes + std::int64_t{sizeof(float)};
constexpr std::int64_t slack = std::int64_t{4} << 20;

// Zeros that take no memory until they are written: a mapped source, which is not counted.
class Mapping {
 public:
  explicit Mapping(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        memory_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Mapping() { ::munmap(memory_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::span<std::byte> span() const { return {static_cast<std::byte*>(memory_), bytes_}; }

 private:
  std::size_t bytes_;
  void* memory_;
};

TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}

// One matrix of all experts.
struct Source {
  Mapping codes{experts * code_bytes};
  Mapping scales{experts * scale_bytes};
  std::vector<float> globals = std::vector<float>(std::size_t{experts}, 1.0F);

  W4a16Matrix matrix() const {
    return {.codes = view(DType::u8, {experts, size, size / 2}, codes.span()),
            .block_scales = view(DType::f8_e4m3, {experts, size, size / 16}, scales.span()),
            .global_scales = view(DType::f32, {experts}, std::as_bytes(std::span(globals)))};
  }
  W4a16MatrixOutput in_place() {
    return {.tiles = codes.span(), .scales = scales.span(), .global_scales = globals};
  }
};

W4a16Input make_input(const Source& w13, const Source& w2, BlockScaleStorage storage) {
  W4a16Input input;
  input.block_scale_storage = storage;
  input.hidden_size = size;
  input.intermediate_size = size;
  input.gating = Gating::ungated;
  input.w13 = w13.matrix();
  input.w2 = w2.matrix();
  return input;
}

class RepackMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pool = make_thread_pool(2);
    ASSERT_TRUE(pool);
    pool_ = std::move(*pool);
    const auto machine = detect_cpu();
    ASSERT_TRUE(machine);
    isa_ = machine->isa;
    before_ = testing::allocated_bytes();
    testing::reset_peak();
  }
  std::int64_t taken() const { return testing::peak_bytes() - before_; }

  std::unique_ptr<Executor> pool_;
  IsaLevel isa_ = IsaLevel::generic;
  std::int64_t before_ = 0;
};

// To a page: what the C library allocated by itself is only seen when it is freed.
TEST_F(RepackMemoryTest, TheCounterSeesBuffersAndContainers) {
  constexpr std::int64_t bytes = 1 << 20;
  constexpr std::int64_t page = 4096;
  auto buffer = AlignedBuffer::allocate(bytes);
  ASSERT_TRUE(buffer);
  EXPECT_GE(taken(), bytes - page);
  const std::vector<std::byte> more(bytes);
  const std::byte* volatile seen = more.data();  // or a compiler may leave the allocation out
  EXPECT_NE(seen, nullptr);
  EXPECT_GE(taken(), 2 * bytes - page);
  EXPECT_EQ(more.size(), buffer->size());
}

// The output, and at most one expert of the source and 4 MiB.
TEST_F(RepackMemoryTest, W4a16TakesItsOutputAndAtMostOneExpert) {
  for (const auto storage : {BlockScaleStorage::plain, BlockScaleStorage::swizzled_128x4}) {
    Source w13;
    Source w2;
    testing::reset_peak();
    before_ = testing::allocated_bytes();
    auto tiles = AlignedBuffer::allocate(2 * experts * code_bytes);
    auto scales = AlignedBuffer::allocate(2 * experts * scale_bytes);
    ASSERT_TRUE(tiles && scales);
    std::vector<float> globals(2 * experts);
    const auto halves = [](auto all, std::size_t half) {
      return all.subspan(half * all.size() / 2, all.size() / 2);
    };
    const auto output = [&](std::size_t half) {
      return W4a16MatrixOutput{.tiles = halves(tiles->span(), half),
                               .scales = halves(scales->span(), half),
                               .global_scales = halves(std::span(globals), half)};
    };
    const auto report = prepare_w4a16(make_input(w13, w2, storage),
                                      {.w13 = output(0), .w2 = output(1)}, isa_, *pool_);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_LE(taken(), 2 * experts * expert_bytes + expert_bytes + slack);
    EXPECT_GE(taken(), 2 * experts * (code_bytes + scale_bytes));
  }
}

TEST_F(RepackMemoryTest, W4a16InPlaceTakesAtMostOneExpert) {
  Source w13;
  Source w2;
  testing::reset_peak();
  before_ = testing::allocated_bytes();
  const auto report = prepare_w4a16(make_input(w13, w2, BlockScaleStorage::plain),
                                    {.w13 = w13.in_place(), .w2 = w2.in_place()}, isa_, *pool_);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_LE(taken(), expert_bytes + slack);
}

// Those that make their results: nothing else of the size of an expert but what a thread puts in
// order.
TEST_F(RepackMemoryTest, OtherLayoutsTakeTheirResultAndAtMostOneExpert) {
  constexpr std::int64_t few = 8;
  const Mapping codes(few * code_bytes);
  const Mapping scales(few * size * size / 32 * 2);
  const TensorView words = view(DType::i32, {few, size / 8, size}, codes.span());
  const TensorView scale_view = view(DType::bf16, {few, size / 32, size}, scales.span());
  const auto expect_little = [&](const char* name, std::int64_t result_bytes) {
    EXPECT_LE(taken(), result_bytes + code_bytes + slack) << name;
    EXPECT_GE(taken(), result_bytes) << name;
    testing::reset_peak();
  };
  {
    const auto result =
        prepare_xpu({.words = words, .scales = scale_view}, {.n = size, .k = size}, 32, *pool_);
    ASSERT_TRUE(result) << result.error().message();
    expect_little("xpu", few * (code_bytes + size * size / 16));
  }
  {
    const auto result = prepare_cpu_int4(
        {.source = WordSource::gptq, .words = words, .scales = scale_view, .zeros = {}},
        {.n = size, .k = size}, 32, *pool_);
    ASSERT_TRUE(result) << result.error().message();
    expect_little("cpu int4", few * size * size / 32 * (640 / 32 + 5));
  }
  MarlinInput input;
  input.group_size = 32;
  input.hidden_size = size;
  input.intermediate_size = size;
  input.gating = Gating::ungated;
  input.w13 = {.words = words, .scales = scale_view, .zeros = {}, .bias = {}, .g_idx = {}};
  input.w2 = input.w13;
  const auto result = prepare_marlin(input, *pool_);
  ASSERT_TRUE(result) << result.error().message();
  expect_little("marlin", 2 * few * (code_bytes + size * size / 16));
}

}  // namespace
}  // namespace fewbit
