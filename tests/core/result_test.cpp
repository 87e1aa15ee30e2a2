// SPDX-License-Identifier: Apache-2.0
#include "fewbit/result.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace fewbit {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return Error{ErrorCode::invalid_argument, "found " + std::to_string(x), "half"};
  return x / 2;
}

Result<void> check(int x) {
  FEWBIT_TRY(half(x));
  return {};
}

Result<int> quarter(int x) {
  FEWBIT_TRY(check(x));
  FEWBIT_TRY(const int h, half(x));
  return half(h);
}

TEST(Result, TryPassesValuesThroughAndErrorsUp) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(3).error().message(), "half: found 3");
  EXPECT_EQ(quarter(6).error().what, "found 3");
  EXPECT_EQ(quarter(6).error().code, ErrorCode::invalid_argument);
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> r(std::make_unique<int>(4));
  const std::unique_ptr<int> p = *std::move(r);
  EXPECT_EQ(*p, 4);
}

}  // namespace
}  // namespace fewbit
