// SPDX-License-Identifier: Apache-2.0
// The size of today's largest published MoE checkpoints, as sparse files.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "checkpoint/json.hpp"
#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {
namespace {

constexpr int shards = 120;
constexpr int tensors_per_shard = 545;
constexpr std::uint64_t tensor_size = std::uint64_t{2048} * 3584;

std::string shard_name(int shard) {
  return "model-" + std::to_string(shard + 10001) + "-of-10120.safetensors";
}

std::string tensor_name(int shard, int tensor) {
  return "model.language_model.layers." + std::to_string(shard / 2) + ".mlp.experts." +
         std::to_string(shard % 2 * tensors_per_shard + tensor) + ".gate_up_proj.weight_packed";
}

// Headers are real, data is a hole in the file.
void write_sparse_shard(const ScratchFolder& folder, int shard) {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  for (int tensor = 0; tensor < tensors_per_shard; ++tensor) {
    const std::uint64_t begin = static_cast<std::uint64_t>(tensor) * tensor_size;
    header += "," + raw_entry(tensor_name(shard, tensor), "U8", "[2048,3584]",
                              "[" + std::to_string(begin) + "," +
                                  std::to_string(begin + tensor_size) + "]");
  }
  const auto path = folder.write(shard_name(shard), raw_safetensors(header + "}"));
  std::filesystem::resize_file(path,
                               std::filesystem::file_size(path) + tensors_per_shard * tensor_size);
}

TEST(LargeCheckpoint, SixtyFiveThousandTensorsIn120ShardsOpen) {
  ScratchFolder folder;
  Json::Object map;
  for (int shard = 0; shard < shards; ++shard) {
    write_sparse_shard(folder, shard);
    for (int tensor = 0; tensor < tensors_per_shard; ++tensor) {
      map.emplace_back(tensor_name(shard, tensor), Json(shard_name(shard)));
    }
  }
  Json index;
  index.set("weight_map", Json(std::move(map)));
  folder.write("model.safetensors.index.json", index.dump(2));

  const auto start = std::chrono::steady_clock::now();
  const auto checkpoint = Checkpoint::open(folder.path());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  RecordProperty("open_seconds", std::to_string(seconds.count()));
  EXPECT_EQ(checkpoint->tensors().size(), std::size_t{shards} * tensors_per_shard);
  EXPECT_EQ(checkpoint->total_bytes(), std::uint64_t{shards} * tensors_per_shard * tensor_size);
  EXPECT_TRUE(checkpoint->findings().empty());
  for (const int shard : {0, 59, 119}) {
    const TensorInfo* info = checkpoint->find(tensor_name(shard, 500));
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->shard, shard);
    EXPECT_EQ(checkpoint->tensor(*info).view.bytes.size(), tensor_size);
  }
}

}  // namespace
}  // namespace fewbit
