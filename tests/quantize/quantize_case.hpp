// SPDX-License-Identifier: Apache-2.0
// A small checkpoint that is quantized into a scratch folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "fewbit/quantize.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {

namespace fs = std::filesystem;

class QuantizeCheckpoint : public testing::Test {
 protected:
  Result<QuantizeReport> quantize(SmallCheckpoint& small, const QuantizeOptions& options = {}) {
    return quantize_checkpoint(small.open(), output_, options, serial_executor());
  }
  Checkpoint result() {
    Result<Checkpoint> checkpoint = Checkpoint::open(output_);
    EXPECT_TRUE(checkpoint) << checkpoint.error().message();
    return *std::move(checkpoint);
  }

  ScratchFolder folder_;
  fs::path output_ = folder_ / "quantized";
};

}  // namespace fewbit
