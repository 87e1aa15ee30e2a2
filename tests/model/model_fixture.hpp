// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "fewbit/model.hpp"
#include "model/tiny_model.hpp"
#include "model/tiny_tokenizer.hpp"

namespace fewbit::test {

// Writes tiny models into folders of its own and loads them.
class ModelTest : public testing::Test {
 protected:
  std::filesystem::path write(const TinyModel& tiny) {
    const auto path = folder_.path() / std::to_string(written_++);
    const auto done = tiny.write(path);
    EXPECT_TRUE(done) << (done ? "" : done.error().message());
    return path;
  }
  Result<Model> try_load(const TinyModel& tiny, const ModelOptions& options = f32_options(),
                         int threads = 2) {
    return Model::load(write(tiny), options, *make_thread_pool(threads));
  }
  Model load(const TinyModel& tiny, const ModelOptions& options = f32_options(), int threads = 2) {
    auto model = try_load(tiny, options, threads);
    EXPECT_TRUE(model) << (model ? "" : model.error().message());
    return *std::move(model);
  }
  static ModelOptions f32_options() {
    ModelOptions options;
    options.activation_dtype = DType::f32;
    return options;
  }
  // Ids that visit the whole vocabulary out of order.
  static std::vector<std::int32_t> some_ids(const TinyConfig& config, std::size_t count) {
    std::vector<std::int32_t> ids(count);
    for (std::size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<std::int32_t>((i * i * 7 + i * 3 + 1) %
                                         static_cast<std::size_t>(config.vocab));
    }
    return ids;
  }

  TemporaryFolder folder_;
  int written_ = 0;
};

// ||a - b|| / ||b|| over all rows.
inline double relative_error(const std::vector<float>& a, const TinyModel::Rows& b) {
  double difference = 0;
  double size = 0;
  std::size_t at = 0;
  for (const auto& row : b) {
    for (const double value : row) {
      difference += std::pow(double{a.at(at++)} - value, 2);
      size += value * value;
    }
  }
  EXPECT_EQ(at, a.size());
  return std::sqrt(difference / size);
}

}  // namespace fewbit::test
