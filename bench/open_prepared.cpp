// SPDX-License-Identifier: Apache-2.0
// How long a prepared model takes from its folder to layers that can run, whatever its size: sparse
// files of 8 GiB, 26 layers of 128 NVFP4 experts 2048 x 768.
//
//   bench_open_prepared [FOLDER]     writes the sparse files into FOLDER (default: a temporary one)
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/time_calls.hpp"
#include "bench/usage.hpp"
#include "checkpoint/json.hpp"
#include "fewbit/prepare.hpp"
#include "prepared/layer_file.hpp"
#include "prepared/manifest.hpp"
#include "select/backend.hpp"

namespace {

using fewbit::bench::Clock;
using fewbit::bench::seconds_since;

constexpr int layers = 26;
constexpr int rounds = 9;

fewbit::Result<fewbit::PreparedLayerInfo> describe_layer(int number) {
  const fewbit::Backend& backend = *fewbit::find_backend("cpu_generic");
  fewbit::PreparedLayerInfo layer;
  layer.layer = number;
  layer.file = fmt::format("prepared/layer-{:05}.safetensors", number);
  layer.backend = backend.name;
  layer.problem.hidden_size = 2048;
  layer.problem.intermediate_size = 768;
  layer.problem.num_experts = 128;
  layer.problem.top_k = 8;
  layer.problem.gate_up = fewbit::nvfp4_scheme();
  layer.problem.down = fewbit::nvfp4_scheme();
  layer.problem.where = fmt::format("model.layers.{}.mlp.experts", number);
  layer.all_experts = 128;
  layer.all_features = 768;
  FEWBIT_TRY(layer.plan, backend.plan_moe(layer.problem, {}));
  return layer;
}

fewbit::Result<std::uint64_t> write_model(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder / "prepared");
  fewbit::PreparedManifest manifest;
  manifest.source_hash = std::string(32, '0');
  std::uint64_t bytes = 0;
  for (int number = 0; number < layers; ++number) {
    FEWBIT_TRY(fewbit::PreparedLayerInfo layer, describe_layer(number));
    FEWBIT_TRY(const fewbit::LayerFile file, fewbit::plan_layer_file(layer));
    std::ofstream(folder / layer.file, std::ios::binary) << file.header;
    std::filesystem::resize_file(folder / layer.file, file.bytes);
    manifest.files.push_back(
        {.name = layer.file, .bytes = file.bytes, .hash = manifest.source_hash});
    manifest.layers.push_back(std::move(layer));
    bytes += file.bytes;
  }
  std::ofstream(folder / fewbit::manifest_name) << fewbit::manifest_json(manifest).dump(1);
  return bytes;
}

struct Times {
  double open = 0;    // manifest, sizes, headers, mappings
  double layers = 0;  // every layer ready to run
  double total() const { return open + layers; }
};

fewbit::Result<Times> measure_once(const std::filesystem::path& folder,
                                   const fewbit::DeviceInfo& device) {
  Times times;
  auto start = Clock::now();
  FEWBIT_TRY(const auto model, fewbit::PreparedModel::open(folder));
  times.open = seconds_since(start);
  start = Clock::now();
  for (const int number : model.layers()) {
    FEWBIT_TRY(const auto layer, model.layer(number, fewbit::DType::bf16, 512, device, {}));
    if (layer.experts.info().owned_bytes != 0) {
      return fewbit::Error{fewbit::ErrorCode::inconsistent, "weights were copied", folder.string()};
    }
  }
  times.layers = seconds_since(start);
  return times;
}

fewbit::Result<void> measure(const std::filesystem::path& folder) {
  FEWBIT_TRY(const std::uint64_t bytes, write_model(folder));
  FEWBIT_TRY(const auto device, fewbit::detect_cpu());
  std::vector<Times> all;
  for (int round = 0; round < rounds; ++round) {
    FEWBIT_TRY(all.emplace_back(), measure_once(folder, device));
  }
  std::sort(all.begin(), all.end(),
            [](const Times& a, const Times& b) { return a.total() < b.total(); });
  const Times& median = all[rounds / 2];
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{:.2f} GiB, {} layers: open {:.2f} ms, layers ready {:.2f} ms, together {:.2f} ms (median "
      "of {}); peak memory {} MB\n",
      static_cast<double>(bytes) / (1 << 30), layers, median.open * 1e3, median.layers * 1e3,
      median.total() * 1e3, rounds, usage.ru_maxrss / 1024);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const fewbit::bench::Usage usage{.text =
                                       "bench_open_prepared [FOLDER]     writes sparse files into "
                                       "FOLDER (default: a temporary one)",
                                   .options = {},
                                   .most_words = 1};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  std::string made =
      (std::filesystem::temp_directory_path() / "fewbit-open-prepared-XXXXXX").string();
  const std::filesystem::path folder = argc > 1 ? argv[1] : ::mkdtemp(made.data());
  std::filesystem::create_directories(folder);
  const auto result = measure(folder);
  if (argc == 1) std::filesystem::remove_all(folder);
  if (result) return 0;
  fmt::print(stderr, "error: {}\n", result.error().message());
  return 1;
}
