// SPDX-License-Identifier: Apache-2.0
// A program of its own: the environment is read once, and here it forces a backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "fewbit/selection.hpp"
#include "select/backend.hpp"

namespace fewbit {
namespace {

const int forced = setenv("FEWBIT_BACKEND", "no_such_backend", 1);

MoeProblem problem() {
  MoeProblem p;
  p.hidden_size = 32;
  p.intermediate_size = 32;
  p.num_experts = 1;
  p.gate_up = nvfp4_scheme();
  p.down = nvfp4_scheme();
  return p;
}

TEST(SelectEnvironment, ForcesABackendUnlessTheCallerDoes) {
  ASSERT_EQ(forced, 0);
  DeviceInfo device;
  device.built_for = {"generic"};
  const auto selection = select_backend(problem(), device);
  ASSERT_FALSE(selection);
  EXPECT_THAT(selection.error().message(),
              testing::HasSubstr("FEWBIT_BACKEND: unknown backend \"no_such_backend\", known: "));
  const auto by_caller = select_backend(problem(), device, {.backend = "reference"});
  ASSERT_TRUE(by_caller);
  EXPECT_EQ(by_caller->chosen, "reference");
}

}  // namespace
}  // namespace fewbit
