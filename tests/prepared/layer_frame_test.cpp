// SPDX-License-Identifier: Apache-2.0
// Bytes of a prepared layer's file that no expert has: header, padding, what is behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "checkpoint/scratch_folder.hpp"
#include "prepared/verify_expert.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

PlannedLayer planned() {
  PlannedLayer layer;
  layer.info.file = "layer.safetensors";
  layer.info.plan.experts = 3;
  for (const auto& [name, bytes] : {std::pair{"scales", 12}, {"codes", 64}}) {
    PlannedBuffer buffer;
    buffer.name = name;
    buffer.layout = "row_major";
    buffer.expert_bytes = static_cast<std::uint64_t>(bytes);
    layer.info.plan.buffers.push_back(buffer);
  }
  layer.file = *plan_layer_file(layer.info);
  return layer;
}

// Why the file with these bytes is not the planned one; empty: it is.
std::string why_not(const PlannedLayer& layer, const std::string& bytes) {
  const ScratchFolder folder;
  folder.write(layer.info.file, bytes);
  const auto pair = pair_layer(folder.path(), layer);
  return pair ? "" : pair.error().message();
}

TEST(LayerFrame, EveryByteIsTheOneThatTheSourceGives) {
  const PlannedLayer layer = planned();
  ASSERT_EQ(layer.file.gaps.size(), 1U);
  const auto [gap, size] = layer.file.gaps.front();
  EXPECT_EQ(gap, layer.file.header.size() + 36);
  EXPECT_EQ(size, 28U);
  const std::string good =
      layer.file.header + std::string(layer.file.bytes - layer.file.header.size(), '\0');
  EXPECT_EQ(why_not(layer, good), "");
  for (std::size_t at = gap; at < gap + size; ++at) {
    std::string bytes = good;
    bytes[at] = '\3';
    EXPECT_THAT(why_not(layer, bytes), HasSubstr("layer.safetensors: padding is 3 at byte " +
                                                 std::to_string(at) + ", the source gives 0"));
  }
  std::string bytes = good;
  ASSERT_EQ(bytes[layer.file.header.size() - 1], ' ');
  bytes[layer.file.header.size() - 1] = '\n';
  EXPECT_THAT(why_not(layer, bytes), HasSubstr("header's bytes differ from the source at byte " +
                                               std::to_string(layer.file.header.size() - 1)));
}

}  // namespace
}  // namespace fewbit
