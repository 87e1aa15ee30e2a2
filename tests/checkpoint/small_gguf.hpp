// SPDX-License-Identifier: Apache-2.0
// GGUF models of a few small tensors, made by the test that reads them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/gguf_writer.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {

class SmallGguf {
 public:
  // Bytes are repeated to fill the tensor.
  SmallGguf& add(std::string name, const GgufType& type, Shape shape,
                 std::vector<std::uint8_t> bytes = {0}) {
    specs_.push_back({std::move(name), type, std::move(shape)});
    bytes_.push_back(std::move(bytes));
    return *this;
  }
  SmallGguf& add(std::string name, std::string_view type, Shape shape,
                 std::vector<std::uint8_t> bytes = {0}) {
    const GgufType* found = find_gguf_type(type);
    EXPECT_NE(found, nullptr) << type;
    return add(std::move(name), found != nullptr ? *found : GgufType{}, std::move(shape),
               std::move(bytes));
  }
  SmallGguf& add_f32(std::string name, Shape shape, const std::vector<float>& values) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    return add(std::move(name), "F32", std::move(shape),
               {bytes, bytes + values.size() * sizeof(float)});
  }
  SmallGguf& pair(GgufPair pair) {
    pairs_.push_back(std::move(pair));
    return *this;
  }

  Checkpoint open() const {
    const ScratchFolder folder;
    const auto path = folder / "model.gguf";
    auto writer = GgufWriter::create(path, pairs_, specs_);
    EXPECT_TRUE(writer) << (writer ? "" : writer.error().message());
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      std::vector<std::byte> data(size_of(specs_[i]));
      for (std::size_t j = 0; j < data.size(); ++j) {
        data[j] = static_cast<std::byte>(bytes_[i][j % bytes_[i].size()]);
      }
      const auto done = writer->write(specs_[i].name, data);
      EXPECT_TRUE(done) << (done ? "" : done.error().message());
    }
    EXPECT_TRUE(writer->finish());
    auto checkpoint = Checkpoint::open(path);  // stays mapped after the folder is gone
    EXPECT_TRUE(checkpoint) << (checkpoint ? "" : checkpoint.error().message());
    return *checkpoint;
  }

 private:
  static std::size_t size_of(const GgufTensorSpec& spec) {
    std::int64_t elements = 1;
    for (const std::int64_t dim : spec.shape) elements *= dim;
    return static_cast<std::size_t>(elements / spec.type.elements * spec.type.bytes);
  }

  std::vector<GgufPair> pairs_;
  std::vector<GgufTensorSpec> specs_;
  std::vector<std::vector<std::uint8_t>> bytes_;
};

}  // namespace fewbit
