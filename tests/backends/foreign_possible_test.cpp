// SPDX-License-Identifier: Apache-2.0
// What explain finds possible and does not call unprepared is prepared, whatever the sizes: no rule
// of a layout is missing among the needs of its backends.
#include <gtest/gtest.h>

#include "backends/foreign_case.hpp"

namespace fewbit {
namespace {

using namespace test;

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all;
  for (const char* name : {"sm_80", "sm_90", "sm_100", "sm_120", "cpu:amx", "xpu"}) {
    all.push_back(describe_device(name).value());
  }
  return all;
}

bool possible(const Backend& backend, MoeProblem problem) {
  static const std::vector<DeviceInfo> all = devices();
  for (const TokenExchange exchange : {TokenExchange::none, TokenExchange::deepep_low_latency}) {
    problem.parallel.exchange = exchange;
    for (const DeviceInfo& device : all) {
      if (backend.moe_refusals(problem, device).empty()) return true;
    }
  }
  return false;
}

// How many backends prepared it.
int check(const Case& c) {
  int prepared = 0;
  for (const Backend* backend : foreign_backends()) {
    if (!possible(*backend, c.problem) || !backend->why_unprepared(c.problem).empty()) continue;
    SCOPED_TRACE(backend->name);
    const auto packed = pack(backend->name, c);
    EXPECT_TRUE(packed) << packed.error().message();
    if (!packed) continue;
    ++prepared;
    EXPECT_EQ(undone(backend->name, c, *packed), "the same");
    Packed changed = *packed;
    changed.shares[0][changed.shares[0].size() / 3] ^= std::byte{0x10};
    EXPECT_NE(undone(backend->name, c, changed), "the same");
  }
  return prepared;
}

TEST(ForeignPossible, IsPreparedForAnySize) {
  int prepared = 0;
  for (const char* scheme : {"nvfp4", "nvfp4-w4a16", "mxfp4", "mxfp4-a8", "fp8-tensor",
                             "fp8-channel", "fp8-block", "bf16", "gptq-int4-g32", "gptq-int4-g128",
                             "gptq-int8-g64", "awq-int4-g64", "ct-int4-g32", "ct-int4-channel"}) {
    const Scheme named = scheme_from_name(scheme).value();
    const bool integer = named.weight == DType::u4 || named.weight == DType::u8;
    const std::int64_t group = named.scale ? named.scale->granularity.cols : 0;
    for (const std::int64_t columns : {64, 96, 128, 320}) {
      for (const std::int64_t inner : {16, 48, 64, 96, 128, 192}) {
        if (group > 0 && group < 128 && (columns % group != 0 || inner % group != 0)) continue;
        if (integer && group == 128 && (columns % group != 0 || inner % group != 0)) continue;
        SCOPED_TRACE(testing::Message() << scheme << " " << columns << " x " << inner);
        Case c =
            integer ? integer_case(scheme, inner, columns) : float_case(scheme, inner, columns);
        c.problem.num_experts = 8;  // routers want some
        c.problem.top_k = 2;
        prepared += check(c);
        if (integer) continue;
        c.expert.gate.reset();
        c.problem.activation = {.kind = Activation::relu2};
        prepared += check(c);
      }
    }
  }
  EXPECT_GT(prepared, 500);
}

}  // namespace
}  // namespace fewbit
