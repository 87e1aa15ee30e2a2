// SPDX-License-Identifier: Apache-2.0
// Plan, pack, open and unpack: the steps of preparation, as streaming into a file takes them.
#include "select/prepare_moe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backends/moe_case.hpp"
#include "core/aligned_buffer.hpp"
#include "select/backend.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;

// A layer in buffers of its own, verbatim ones too, as a file holds it.
struct Packed {
  MoePlan plan;
  std::vector<AlignedBuffer> buffers;

  std::span<std::byte> share(std::size_t buffer, std::size_t expert) {
    const std::uint64_t bytes = plan.buffers[buffer].expert_bytes;
    return buffers[buffer].span().subspan(expert * bytes, bytes);
  }
  PreparedMemory memory() {
    PreparedMemory out;
    for (std::size_t e = 0; e < static_cast<std::size_t>(plan.experts); ++e) {
      out.experts.emplace_back();
      for (std::size_t b = 0; b < buffers.size(); ++b) out.experts[e].push_back(share(b, e));
    }
    return out;
  }
};

Packed pack(const Backend& backend, const MoeProblem& problem, const MoeWeights& weights) {
  Packed packed;
  packed.plan = *backend.plan_moe(problem, weights.experts.front());
  for (const PlannedBuffer& buffer : packed.plan.buffers) {
    packed.buffers.push_back(*AlignedBuffer::allocate(
        buffer.expert_bytes * static_cast<std::uint64_t>(packed.plan.experts)));
    std::ranges::fill(packed.buffers.back().span(), std::byte{0xee});
  }
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    std::vector<std::span<std::byte>> to;
    for (std::size_t b = 0; b < packed.buffers.size(); ++b) {
      to.push_back(packed.share(b, e));
      if (packed.plan.buffers[b].use != BufferUse::verbatim) continue;
      const Tensor part = *verbatim_share(packed.plan.buffers[b], weights.experts[e], "test");
      std::ranges::copy(part.view.bytes, to.back().begin());
    }
    EXPECT_TRUE(backend.pack_expert(problem, packed.plan, weights.experts[e], to));
  }
  return packed;
}

std::vector<std::byte> result_of(const PreparedMoe& layer, const MoeProblem& problem,
                                 const Call& call) {
  std::vector<std::byte> hidden(call.hidden.size() * sizeof(float));
  std::memcpy(hidden.data(), call.hidden.data(), hidden.size());
  std::vector<std::byte> out(hidden.size());
  AlignedBuffer workspace = *AlignedBuffer::allocate(*layer.workspace_bytes(call.tokens));
  MoeArgs args = test::args_of(problem, call, hidden);
  args.out = out;
  args.workspace = workspace.span();
  EXPECT_TRUE(layer.run(args, serial_executor()));
  return out;
}

class PrepareMoe : public testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  const Backend& backend() const { return *find_backend(std::get<0>(GetParam())); }
  static LayerSpec spec(DType weight) {
    return {.experts = 3,
            .hidden_size = 48,  // the scales of a share end inside a cache line
            .intermediate_size = 80,
            .weight = weight,
            .activation = {}};
  }
  MoeWeights weights() const { return test::random_weights(spec(std::get<1>(GetParam()))); }
  MoeProblem problem() const {
    MoeProblem problem = test::problem_of(spec(std::get<1>(GetParam())), 2, 8);
    problem.activation_dtype = DType::f32;
    problem.where = "layer 7";
    return problem;
  }
};

TEST_P(PrepareMoe, OpenedFromItsBuffersALayerGivesTheBitsOfOnePreparedInMemory) {
  const MoeProblem problem = this->problem();
  const MoeWeights weights = this->weights();
  const auto direct = prepare_moe(backend(), problem, weights, serial_executor());
  ASSERT_TRUE(direct) << direct.error().message();
  Packed packed = pack(backend(), problem, weights);
  const auto opened = backend().open_moe(problem, packed.plan, packed.memory());
  ASSERT_TRUE(opened) << opened.error().message();
  const Call call = test::random_call(problem, 8, 5);
  EXPECT_EQ(result_of(**opened, problem, call), result_of(**direct, problem, call));
}

TEST_P(PrepareMoe, PackingIsAFunctionOfTheWeightsAlone) {
  const Packed a = pack(backend(), problem(), weights());
  const Packed b = pack(backend(), problem(), weights());
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(a.buffers[i].span(), b.buffers[i].span()))
        << a.plan.buffers[i].name;
  }
}

TEST_P(PrepareMoe, UnpackingGivesTheCanonicalWeightsBack) {
  const MoeWeights weights = this->weights();
  Packed packed = pack(backend(), problem(), weights);
  const PreparedMemory memory = packed.memory();
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    const auto back = backend().unpack_expert(problem(), packed.plan, memory.experts[e]);
    ASSERT_TRUE(back) << back.error().message();
    const auto same = [](const QuantizedTensor& x, const QuantizedTensor& y) {
      return x.scheme == y.scheme && x.global_scale == y.global_scale &&
             std::ranges::equal(x.codes.view.bytes, y.codes.view.bytes) &&
             std::ranges::equal(x.scales.view.bytes, y.scales.view.bytes);
    };
    EXPECT_TRUE(same(*back->gate, *weights.experts[e].gate));
    EXPECT_TRUE(same(back->up, weights.experts[e].up));
    EXPECT_TRUE(same(back->down, weights.experts[e].down));
  }
}

TEST_P(PrepareMoe, ABufferOfAnotherLayoutIsNeverRead) {
  Packed packed = pack(backend(), problem(), weights());
  MoePlan plan = packed.plan;
  const std::string was = plan.buffers[0].layout;
  plan.buffers[0].layout = "b12x_packed";
  const auto opened = backend().open_moe(problem(), plan, packed.memory());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::inconsistent);
  EXPECT_NE(opened.error().message().find("gate.codes"), std::string::npos);
  EXPECT_NE(opened.error().message().find("b12x_packed"), std::string::npos);
  if (packed.plan.buffers[0].use == BufferUse::packed) {
    EXPECT_NE(opened.error().message().find(was), std::string::npos);
  }
}

TEST_P(PrepareMoe, MemoryOfAnotherSizeIsRefusedWithBothNumbers) {
  Packed packed = pack(backend(), problem(), weights());
  PreparedMemory memory = packed.memory();
  const std::size_t bytes = memory.experts[1][0].size();
  memory.experts[1][0] = memory.experts[1][0].first(bytes - 1);
  const auto cut = backend().open_moe(problem(), packed.plan, memory);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().message(),
            "layer 7: buffer gate.codes of expert 1: " + std::to_string(bytes - 1) +
                " bytes, expected " + std::to_string(bytes));
  memory = packed.memory();
  memory.experts.pop_back();
  const auto fewer = backend().open_moe(problem(), packed.plan, memory);
  ASSERT_FALSE(fewer);
  EXPECT_EQ(fewer.error().message(), "layer 7: memory of 2 experts, expected 3");
}

INSTANTIATE_TEST_SUITE_P(Backends, PrepareMoe,
                         testing::Combine(testing::Values("cpu_generic", "reference"),
                                          testing::Values(DType::f4_e2m1, DType::bf16, DType::f32)),
                         [](const auto& param) {
                           return std::string(std::get<0>(param.param)) + "_" +
                                  std::string(dtype_name(std::get<1>(param.param)));
                         });

TEST(MoePlan, IsTheSameForEveryCpuLevel) {
  const LayerSpec spec{.weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const MoeProblem problem = test::problem_of(spec, 1, 1);
  const auto plan_of = [&](const char* name) {
    return *find_backend(name)->plan_moe(problem, weights.experts.front());
  };
  EXPECT_EQ(plan_of("cpu_generic"), plan_of("cpu_avx2"));
  EXPECT_EQ(plan_of("cpu_generic"), plan_of("cpu_avx512"));
}

TEST(MoePlan, RefusesWhatCanNotBeCounted) {
  MoePlan plan{.experts = std::int64_t{1} << 40, .buffers = {}};
  const auto huge = plan.add({.name = "up.codes",
                              .layout = "x",
                              .scale_format = "",
                              .source = "",
                              .dtype = DType::u8,
                              .shape = {std::int64_t{1} << 40}});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::limit);
  EXPECT_NE(huge.error().message().find("1099511627776 experts of 1099511627776 bytes"),
            std::string::npos);
  const auto odd = plan.add({.name = "up.codes",
                             .layout = "x",
                             .scale_format = "",
                             .source = "",
                             .dtype = DType::u8,
                             .shape = {64},
                             .alignment = 48});
  ASSERT_FALSE(odd);
  EXPECT_NE(odd.error().message().find("alignment 48"), std::string::npos);
}

}  // namespace
}  // namespace fewbit
