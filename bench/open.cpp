// SPDX-License-Identifier: Apache-2.0
// How long a checkpoint of the largest published size takes to open, identify and validate by its
// headers, on one core: 120 shards, 65,400 tensors of NVFP4 experts in sparse files.
//
//   bench_open [FOLDER]     writes the sparse files into FOLDER (default: a temporary one)
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/usage.hpp"
#include "fewbit/scheme.hpp"

namespace {

constexpr int shards = 120;
constexpr int layers = 50;
constexpr int experts = 109;
constexpr int rounds = 5;
constexpr std::int64_t hidden = 7168;
constexpr std::int64_t intermediate = 2048;

struct Projection {
  const char* name;
  std::int64_t n;
  std::int64_t k;
};
constexpr Projection projections[] = {{"gate_proj", intermediate, hidden},
                                      {"up_proj", intermediate, hidden},
                                      {"down_proj", hidden, intermediate}};

std::string shard_name(int shard) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

struct Shard {
  std::string header;
  std::int64_t bytes = 0;

  void add(const std::string& name, const char* dtype, const std::string& shape,
           std::int64_t size) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.empty() ? "{" : ",", name, dtype, shape, bytes, bytes + size);
    bytes += size;
  }
};

void write_sparse(const std::filesystem::path& path, Shard& shard) {
  shard.header += "}";
  std::ofstream out(path, std::ios::binary);
  const auto length = static_cast<std::uint64_t>(shard.header.size());
  for (int i = 0; i < 8; ++i) out.put(static_cast<char>(length >> (8 * i) & 0xFFU));
  out << shard.header;
  out.close();
  std::filesystem::resize_file(path, 8 + length + static_cast<std::uint64_t>(shard.bytes));
}

void write_checkpoint(const std::filesystem::path& folder) {
  std::vector<Shard> files(shards);
  std::string map;
  for (int expert = 0; expert < layers * experts; ++expert) {
    const int number = expert * shards / (layers * experts);
    Shard& shard = files[static_cast<std::size_t>(number)];
    const auto add = [&](const std::string& name, const char* dtype, const std::string& shape,
                         std::int64_t size) {
      shard.add(name, dtype, shape, size);
      map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name, shard_name(number));
    };
    for (const Projection& p : projections) {
      const std::string module = fmt::format("model.layers.{}.mlp.experts.{}.{}", expert / experts,
                                             expert % experts, p.name);
      add(module + ".weight", "U8", fmt::format("[{},{}]", p.n, p.k / 2), p.n * p.k / 2);
      add(module + ".weight_scale", "F8_E4M3", fmt::format("[{},{}]", p.n, p.k / 16),
          p.n * p.k / 16);
      add(module + ".weight_scale_2", "F32", "[]", 4);
      add(module + ".input_scale", "F32", "[]", 4);
    }
  }
  for (int i = 0; i < shards; ++i) {
    write_sparse(folder / shard_name(i), files[static_cast<std::size_t>(i)]);
  }
  std::ofstream(folder / "model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
  std::ofstream(folder / "config.json")
      << "{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}}";
}

struct Times {
  double open = 0;
  double identify = 0;
  double validate = 0;
  double total() const { return open + identify + validate; }
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

fewbit::Result<Times> measure_once(const std::filesystem::path& folder) {
  Times times;
  auto start = std::chrono::steady_clock::now();
  FEWBIT_TRY(const auto checkpoint, fewbit::Checkpoint::open(folder));
  times.open = seconds_since(start);
  start = std::chrono::steady_clock::now();
  FEWBIT_TRY(const auto identified, fewbit::identify(checkpoint));
  times.identify = seconds_since(start);
  start = std::chrono::steady_clock::now();
  const auto findings = fewbit::validate(checkpoint, identified, fewbit::Depth::headers);
  times.validate = seconds_since(start);
  const auto wrong = std::count_if(findings.begin(), findings.end(), [](const auto& finding) {
    return finding.level == fewbit::Level::error;
  });
  if (identified.modules.size() != std::size(projections) * layers * experts || wrong > 0) {
    return fewbit::Error{fewbit::ErrorCode::inconsistent,
                         fmt::format("{} modules, {} errors", identified.modules.size(), wrong),
                         folder.string()};
  }
  return times;
}

fewbit::Result<void> measure(const std::filesystem::path& folder) {
  std::vector<Times> all;
  for (int round = 0; round < rounds; ++round) {
    FEWBIT_TRY(all.emplace_back(), measure_once(folder));
  }
  std::sort(all.begin(), all.end(),
            [](const Times& a, const Times& b) { return a.total() < b.total(); });
  const Times& median = all[rounds / 2];
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{} shards, {} tensors: open {:.3f} s, identify {:.3f} s, validate headers {:.3f} s, "
      "together {:.3f} s (median of {}); peak memory {} MB\n",
      shards, 4 * std::size(projections) * layers * experts, median.open, median.identify,
      median.validate, median.total(), rounds, usage.ru_maxrss / 1024);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const fewbit::bench::Usage usage{
      .text = "bench_open [FOLDER]     writes sparse files into FOLDER (default: a temporary one)",
      .options = {},
      .most_words = 1};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  std::string made = (std::filesystem::temp_directory_path() / "fewbit-open-XXXXXX").string();
  const std::filesystem::path folder = argc > 1 ? argv[1] : ::mkdtemp(made.data());
  std::filesystem::create_directories(folder);
  write_checkpoint(folder);
  const auto result = measure(folder);
  if (argc == 1) std::filesystem::remove_all(folder);
  if (result) return 0;
  fmt::print(stderr, "error: {}\n", result.error().message());
  return 1;
}
