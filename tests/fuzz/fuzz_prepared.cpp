// SPDX-License-Identifier: Apache-2.0
// Any manifest of a prepared model, its hash put right: an error, or one that reads back as itself
// and whose layers open from memory of their size, or are refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/json.hpp"
#include "core/aligned_buffer.hpp"
#include "prepared/layer_file.hpp"
#include "prepared/manifest.hpp"
#include "select/backend.hpp"

namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 20;
constexpr std::int64_t most_experts = 64;

void open(const fewbit::PreparedLayerInfo& layer, std::uint64_t bytes) {
  auto buffer = fewbit::AlignedBuffer::allocate(bytes);
  if (!buffer) return;
  fewbit::PreparedMemory memory;
  memory.experts.resize(static_cast<std::size_t>(layer.plan.experts));
  for (auto& shares : memory.experts) {
    for (const auto& each : layer.plan.buffers) {
      shares.push_back(buffer->span().first(each.expert_bytes));
    }
  }
  for (const char* name : {"cpu_generic", "reference"}) {
    static_cast<void>(fewbit::find_backend(name)->open_moe(layer.problem, layer.plan, memory));
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = fewbit::Json::parse(text, "fuzz");
  if (!json) return 0;
  static_cast<void>(fewbit::parse_manifest(*json, "fuzz"));
  const auto manifest = fewbit::parse_manifest_fields(*json, "fuzz");
  if (!manifest) return 0;
  const fewbit::Json written = fewbit::manifest_json(*manifest);
  const auto again = fewbit::parse_manifest(written, "fuzz");
  if (!again || fewbit::manifest_json(*again).dump() != written.dump()) std::abort();
  for (const fewbit::PreparedLayerInfo& layer : manifest->layers) {
    const auto file = fewbit::plan_layer_file(layer);
    if (!file || file->bytes > most_bytes || layer.plan.experts > most_experts) continue;
    open(layer, file->bytes);
  }
  return 0;
}
