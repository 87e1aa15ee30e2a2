// SPDX-License-Identifier: Apache-2.0
// Tests of kernels on this machine's first GPU; skipped where there is none that they run on.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "device/device.hpp"

namespace fewbit::cuda {

#define ASSERT_OK(result) ASSERT_TRUE(result) << (result).error().message()

// Compute capabilities, as 10 major + minor.
struct Capabilities {
  int least = 90;
  int most = 90;
};

class CardTest : public testing::Test {
 protected:
  explicit CardTest(Capabilities needed = {}) : needed_(needed) {}
  void SetUp() override {
    const Result<int> devices = device::count();
    if (!devices) GTEST_SKIP() << devices.error().message();
    if (*devices == 0) GTEST_SKIP() << "no CUDA device";
    Result<DeviceInfo> found = describe_device("cuda");
    ASSERT_TRUE(found) << found.error().message();
    const int has = found->compute_capability;
    if (has < needed_.least || has > needed_.most) {
      GTEST_SKIP() << found->name << " has compute capability " << has << ", the kernels need "
                   << needed_.least << (needed_.most > needed_.least ? " or more" : "");
    }
    device_ = *std::move(found);
  }

  DeviceInfo device_;

 private:
  Capabilities needed_;
};

}  // namespace fewbit::cuda
