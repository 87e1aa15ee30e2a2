// SPDX-License-Identifier: Apache-2.0
// Decode is bound by the bytes of the weights, so each of them may come from memory only once.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "backends/cpu/cpu.hpp"
#include "backends/moe_case.hpp"
#include "backends/watched_pages.hpp"
#include "core/aligned_buffer.hpp"
#include "kernels/levels.hpp"

namespace fewbit {
namespace {

using test::LayerSpec;
using test::WatchedPages;

// Sizes whose matrices and whose chunks of rows fill whole pages of 4 KiB, so that no page holds
// bytes of two steps of the work.
constexpr LayerSpec layer_spec(DType weight) {
  return {.experts = 4,
          .hidden_size = 1024,
          .intermediate_size = 512,
          .weight = weight,
          .activation = {}};
}

// A layer whose weights all lie in watched memory, experts one after the other.
class WatchedLayer {
 public:
  WatchedLayer(IsaLevel level, const LayerSpec& spec)
      : weights_(test::random_weights(spec)),
        problem_(test::problem_of(spec, 2, 4)),
        plan_(*cpu::plan_moe(problem_)),
        expert_bytes_(bytes_of_expert()),
        pages_(expert_bytes_ * weights_.experts.size()),
        globals_(weights_.experts.size()) {
    PreparedMemory memory;
    for (std::size_t e = 0; e < weights_.experts.size(); ++e) memory.experts.push_back(place(e));
    layer_ = *cpu::open_moe(cpu::kernels_of(level), problem_, plan_, std::move(memory));
  }

  // How often each page of expert e was opened: [e][page].
  std::vector<std::vector<int>> count(const std::vector<std::int32_t>& ids, int calls) {
    const auto tokens = static_cast<std::int64_t>(ids.size()) / problem_.top_k;
    const test::Call call = test::random_call(problem_, tokens, 5);
    std::vector<std::byte> hidden(call.hidden.size() * 2);
    std::vector<std::byte> out(hidden.size());
    AlignedBuffer workspace = *AlignedBuffer::allocate(*layer_->workspace_bytes(tokens));
    const std::vector<float> topk_weights(ids.size(), 0.5F);
    MoeArgs args = test::args_of(problem_, call, hidden);
    args.topk_ids = ids;
    args.topk_weights = topk_weights;
    args.out = out;
    args.workspace = workspace.span();
    pages_.watch();
    for (int i = 0; i < calls; ++i) EXPECT_TRUE(layer_->run(args, serial_executor()));
    return by_expert(pages_.stop());
  }

 private:
  std::size_t bytes_of_expert() const {
    std::size_t bytes = 0;
    for (const PlannedBuffer& buffer : plan_.buffers) {
      if (buffer.use != BufferUse::at_open) bytes += buffer.expert_bytes;
    }
    return bytes;
  }

  // Packs expert e into its pages; what only open_moe reads stays outside.
  std::vector<std::span<const std::byte>> place(std::size_t e) {
    std::vector<std::span<std::byte>> shares;
    std::span<std::byte> rest = pages_.memory().subspan(e * expert_bytes_, expert_bytes_);
    for (const PlannedBuffer& buffer : plan_.buffers) {
      if (buffer.use == BufferUse::at_open) {
        globals_[e].resize(buffer.expert_bytes);
        shares.emplace_back(globals_[e]);
        continue;
      }
      shares.push_back(rest.first(buffer.expert_bytes));
      rest = rest.subspan(buffer.expert_bytes);
      if (buffer.use == BufferUse::verbatim) {
        const Tensor* part = canonical_part(weights_.experts[e], buffer.name);
        std::ranges::copy(part->view.bytes, shares.back().begin());
      }
    }
    EXPECT_TRUE(cpu::pack_expert(problem_, plan_, weights_.experts[e], shares));
    return {shares.begin(), shares.end()};
  }

  std::vector<std::vector<int>> by_expert(const std::vector<int>& counts) const {
    const auto pages = static_cast<std::ptrdiff_t>(expert_bytes_ / WatchedPages::page_bytes());
    std::vector<std::vector<int>> result;
    for (auto from = counts.begin(); from < counts.end(); from += pages) {
      result.emplace_back(from, from + pages);
    }
    return result;
  }

  MoeWeights weights_;
  MoeProblem problem_;
  MoePlan plan_;
  std::size_t expert_bytes_;
  WatchedPages pages_;
  std::vector<std::vector<std::byte>> globals_;
  std::unique_ptr<PreparedMoe> layer_;
};

class WeightsReadOnce : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override {
    FEWBIT_SKIP_UNUSABLE(GetParam());
    if (WatchedPages::page_bytes() != 4096) {
      GTEST_SKIP() << "pages are " << WatchedPages::page_bytes() << " bytes, the layer fits 4096";
    }
  }

  static void expect_all(const std::vector<int>& pages, int count, std::size_t expert) {
    ASSERT_GT(pages.size(), 4 * WatchedPages::open_pages);
    EXPECT_EQ(std::ranges::count(pages, count), std::ssize(pages))
        << "expert " << expert << ": page 0 was opened " << pages.front() << " times, the most "
        << *std::ranges::max_element(pages) << ", expected " << count;
  }
};

TEST_P(WeightsReadOnce, DecodeReadsTheChosenExpertsOnceAndNoOther) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    WatchedLayer layer(GetParam(), layer_spec(weight));
    const auto pages = layer.count({3, 1}, 1);
    for (std::size_t e = 0; e < pages.size(); ++e) expect_all(pages[e], e % 2 == 1 ? 1 : 0, e);
  }
}

TEST_P(WeightsReadOnce, TokensOfOneCallShareARead) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    WatchedLayer layer(GetParam(), layer_spec(weight));
    const auto pages = layer.count({3, 1, 1, 3, 3, 0, 3, 1}, 1);
    for (std::size_t e = 0; e < pages.size(); ++e) expect_all(pages[e], e == 2 ? 0 : 1, e);
  }
}

// What the counting is worth: a second call is seen.
TEST_P(WeightsReadOnce, ASecondCallReadsThemAgain) {
  WatchedLayer layer(GetParam(), layer_spec(DType::f4_e2m1));
  expect_all(layer.count({0, 2}, 2)[2], 2, 2);
}

FEWBIT_INSTANTIATE_LEVELS(WeightsReadOnce);

}  // namespace
}  // namespace fewbit
