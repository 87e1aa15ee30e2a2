// SPDX-License-Identifier: Apache-2.0
// What preparing takes beside the weights, in memory of its own and in place: what is allocated,
// and what of it is resident.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fewbit/moe.hpp"
#include "fewbit/prepare_in_place.hpp"
#include "layout/counting_memory.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t experts = 64;
constexpr std::int64_t size = 2048;
constexpr std::int64_t code_bytes = size * size / 2;
constexpr std::int64_t scale_bytes = size * size / 16;
constexpr std::int64_t expert_bytes = 2 * (code_bytes + scale_bytes);  // up and down
constexpr std::int64_t slack = std::int64_t{4} << 20;

// Their memory, all of it resident.
class SixtyFourExperts {
 public:
  SixtyFourExperts() {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return;
    memory = {static_cast<std::byte*>(mapped), bytes};
    std::memset(mapped, 0x35, bytes);
    for (std::int64_t e = 0; e < experts; ++e) {
      ExpertWeights expert;
      expert.up = take_matrix();
      expert.down = take_matrix();
      weights.experts.push_back(std::move(expert));
    }
    problem.hidden_size = size;
    problem.intermediate_size = size;
    problem.num_experts = experts;
    problem.gate_up = weights.experts[0].up.scheme;
    problem.down = problem.gate_up;
    problem.activation.kind = Activation::relu2;
    problem.where = "experts";
  }
  SixtyFourExperts(const SixtyFourExperts&) = delete;
  SixtyFourExperts& operator=(const SixtyFourExperts&) = delete;
  ~SixtyFourExperts() {
    if (!memory.empty()) ::munmap(memory.data(), bytes);
  }

  static constexpr auto bytes = static_cast<std::size_t>(experts * expert_bytes);
  std::span<std::byte> memory;
  MoeWeights weights{.hidden_size = size, .intermediate_size = size, .experts = {}};
  MoeProblem problem;

 private:
  Tensor take(DType dtype, std::int64_t columns, std::int64_t count) {
    const auto part = memory.subspan(used_, static_cast<std::size_t>(count));
    used_ += part.size();
    return Tensor{.view = {.dtype = dtype, .shape = {size, columns}, .bytes = part, .device = {}},
                  .owner = nullptr};
  }
  QuantizedTensor take_matrix() {
    Tensor codes = take(DType::f4_e2m1, size, code_bytes);
    Tensor scales = take(DType::f8_e4m3, size / 16, scale_bytes);
    return *make_nvfp4(size, size, std::move(codes), std::move(scales), 0.5F);
  }
  std::size_t used_ = 0;
};

// "VmHWM" of /proc/self/status, in bytes.
std::optional<std::int64_t> status_bytes(const std::string& name) {
  std::ifstream file("/proc/self/status");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t at = text.find(name + ":");
  if (at == std::string::npos) return std::nullopt;
  return std::stoll(text.substr(at + name.size() + 1)) * 1024;
}

// Peaks from its making on.
class Peaks {
 public:
  Peaks() {
    testing::reset_peak();
    allocated_ = testing::allocated_bytes();
    std::ofstream("/proc/self/clear_refs") << "5";  // the highest is what it is now
    resident_ = status_bytes("VmRSS");
    const auto highest = status_bytes("VmHWM");
    if (!resident_ || !highest || *highest > *resident_ + (std::int64_t{1} << 20))
      resident_.reset();
  }
  std::int64_t allocated() const { return testing::peak_bytes() - allocated_; }
  // Empty: this system does not tell, or a sanitizer has memory of its own.
  std::optional<std::int64_t> resident() const {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
    return std::nullopt;
#else
    if (!resident_) return std::nullopt;
    return *status_bytes("VmHWM") - *resident_;
#endif
  }

 private:
  std::int64_t allocated_ = 0;
  std::optional<std::int64_t> resident_;
};

class PrepareMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(all_.memory.empty());
    const auto device = detect_cpu();
    ASSERT_TRUE(device);
    device_ = *device;
    const auto selection = select_backend(all_.problem, device_, {.backend = "cpu_generic"});
    ASSERT_TRUE(selection) << selection.error().message();
    selection_ = *selection;
    auto pool = make_thread_pool(2);
    ASSERT_TRUE(pool);
    pool_ = std::move(*pool);
  }
  // From least to least + one expert + 4 MiB, by both means.
  static void expect(const Peaks& peaks, std::int64_t least) {
    EXPECT_GE(peaks.allocated(), least);
    EXPECT_LE(peaks.allocated(), least + expert_bytes + slack);
    const auto resident = peaks.resident();
    if (!resident) GTEST_SKIP() << "no peak of resident memory: system or sanitizer";
    EXPECT_LE(*resident, least + expert_bytes + slack);
  }

  SixtyFourExperts all_;
  DeviceInfo device_;
  Selection selection_;
  std::unique_ptr<Executor> pool_;
};

TEST_F(PrepareMemory, IsTheOutputAndAtMostOneExpert) {
  const Peaks peaks;
  const auto layer = MoeLayer::prepare(selection_, all_.problem, all_.weights, device_, *pool_);
  ASSERT_TRUE(layer) << layer.error().message();
  const PreparedInfo& info = layer->info();
  EXPECT_EQ(info.owned_bytes + info.mapped_bytes, all_.bytes);
  expect(peaks, static_cast<std::int64_t>(info.owned_bytes));
}

TEST_F(PrepareMemory, InPlaceIsAtMostOneExpert) {
  const Peaks peaks;
  const std::int64_t before = testing::allocated_bytes();
  const auto layer = prepare_in_place(selection_, all_.problem, all_.weights, all_.memory, device_);
  ASSERT_TRUE(layer) << layer.error().message();
  EXPECT_LE(testing::allocated_bytes() - before, slack);
  expect(peaks, 0);
}

}  // namespace
}  // namespace fewbit
