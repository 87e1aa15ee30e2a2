// SPDX-License-Identifier: Apache-2.0
// How long a checkpoint of the largest published size takes to open, identify and validate by its
// headers, on one core: 120 shards, 65,400 tensors of experts in sparse files.
//
//   bench_open [--kind KIND] [FOLDER]     writes the sparse files into FOLDER (default: a temporary
//   one)
//
// KIND is nvfp4 (default), ct-int4 (compressed-tensors' pack-quantized, with weight_shape and
// weight_g_idx) or gptq-int4.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/time_calls.hpp"
#include "bench/usage.hpp"
#include "fewbit/scheme.hpp"

namespace {

using fewbit::bench::Clock;
using fewbit::bench::seconds_since;

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
  std::vector<std::pair<std::int64_t, std::string>> values;  // of data that is not zero

  void add(const std::string& name, const char* dtype, const std::string& shape,
           std::int64_t size) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.empty() ? "{" : ",", name, dtype, shape, bytes, bytes + size);
    bytes += size;
  }
};

// One tensor of a quantized projection.
struct Part {
  const char* suffix;
  const char* dtype;
  std::string shape;
  std::int64_t bytes = 0;
  std::string data = {};  // empty: zeros
};

constexpr std::int64_t group = 32;  // of integers

std::string little_endian(std::initializer_list<std::int64_t> numbers) {
  std::string out;
  for (const std::int64_t number : numbers) {
    for (int i = 0; i < 8; ++i) {
      out += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xFFU);
    }
  }
  return out;
}

std::vector<Part> nvfp4_parts(std::int64_t n, std::int64_t k) {
  return {{"weight", "U8", fmt::format("[{},{}]", n, k / 2), n * k / 2},
          {"weight_scale", "F8_E4M3", fmt::format("[{},{}]", n, k / 16), n * k / 16},
          {"weight_scale_2", "F32", "[]", 4},
          {"input_scale", "F32", "[]", 4}};
}

std::vector<Part> ct_int4_parts(std::int64_t n, std::int64_t k) {
  return {{"weight_packed", "I32", fmt::format("[{},{}]", n, k / 8), n * k / 2},
          {"weight_scale", "BF16", fmt::format("[{},{}]", n, k / group), n * k / group * 2},
          {"weight_shape", "I64", "[2]", 16, little_endian({n, k})},
          {"weight_g_idx", "I32", fmt::format("[{}]", k), k * 4}};
}

std::vector<Part> gptq_int4_parts(std::int64_t n, std::int64_t k) {
  return {{"qweight", "I32", fmt::format("[{},{}]", k / 8, n), n * k / 2},
          {"qzeros", "I32", fmt::format("[{},{}]", k / group, n / 8), n * k / group / 2},
          {"scales", "F16", fmt::format("[{},{}]", k / group, n), n * k / group * 2},
          {"g_idx", "I32", fmt::format("[{}]", k), k * 4}};
}

struct Kind {
  std::string_view name;
  std::vector<Part> (*parts)(std::int64_t n, std::int64_t k);
  const char* quantization;
};
constexpr Kind kinds[] = {
    {"nvfp4", nvfp4_parts, R"({"quant_method":"modelopt","quant_algo":"NVFP4"})"},
    {"ct-int4", ct_int4_parts,
     R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":)"
     R"({"targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":true,)"
     R"("strategy":"group","group_size":32,"actorder":"group"}}}})"},
    {"gptq-int4", gptq_int4_parts,
     R"({"quant_method":"gptq","bits":4,"group_size":32,"sym":true,"desc_act":false})"}};

void write_sparse(const std::filesystem::path& path, Shard& shard) {
  shard.header += "}";
  std::ofstream out(path, std::ios::binary);
  const std::string length = little_endian({std::ssize(shard.header)});
  out << length << shard.header;
  const auto data = static_cast<std::int64_t>(length.size() + shard.header.size());
  for (const auto& [offset, bytes] : shard.values) out.seekp(data + offset) << bytes;
  out.close();
  std::filesystem::resize_file(path, static_cast<std::uint64_t>(data + shard.bytes));
}

void write_checkpoint(const Kind& kind, const std::filesystem::path& folder) {
  std::vector<Shard> files(shards);
  std::string map;
  for (int expert = 0; expert < layers * experts; ++expert) {
    const int number = expert * shards / (layers * experts);
    Shard& shard = files[static_cast<std::size_t>(number)];
    for (const Projection& p : projections) {
      const std::string module = fmt::format("model.layers.{}.mlp.experts.{}.{}", expert / experts,
                                             expert % experts, p.name);
      for (Part& part : kind.parts(p.n, p.k)) {
        const std::string name = fmt::format("{}.{}", module, part.suffix);
        if (!part.data.empty()) shard.values.emplace_back(shard.bytes, std::move(part.data));
        shard.add(name, part.dtype, part.shape, part.bytes);
        map += fmt::format("{}\"{}\":\"{}\"", map.empty() ? "" : ",", name, shard_name(number));
      }
    }
  }
  for (int i = 0; i < shards; ++i) {
    write_sparse(folder / shard_name(i), files[static_cast<std::size_t>(i)]);
  }
  std::ofstream(folder / "model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
  std::ofstream(folder / "config.json")
      << fmt::format("{{\"quantization_config\":{}}}", kind.quantization);
}

struct Times {
  double open = 0;
  double identify = 0;
  double validate = 0;
  double total() const { return open + identify + validate; }
};

fewbit::Result<Times> measure_once(const std::filesystem::path& folder) {
  Times times;
  auto start = Clock::now();
  FEWBIT_TRY(const auto checkpoint, fewbit::Checkpoint::open(folder));
  times.open = seconds_since(start);
  start = Clock::now();
  FEWBIT_TRY(const auto identified, fewbit::identify(checkpoint));
  times.identify = seconds_since(start);
  start = Clock::now();
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

fewbit::Result<void> measure(const Kind& kind, const std::filesystem::path& folder) {
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
      "{}, {} shards, {} tensors: open {:.3f} s, identify {:.3f} s, validate headers {:.3f} s, "
      "together {:.3f} s (median of {}); peak memory {} MB\n",
      kind.name, shards, 4 * std::size(projections) * layers * experts, median.open,
      median.identify, median.validate, median.total(), rounds, usage.ru_maxrss / 1024);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const fewbit::bench::Usage usage{
      .text =
          "bench_open [--kind nvfp4|ct-int4|gptq-int4] [FOLDER]     writes sparse files into "
          "FOLDER (default: a temporary one)",
      .options = {"--kind"},
      .most_words = 1};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  std::string_view kind_name = kinds[0].name;
  std::string_view place;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string_view("--kind")) {
      kind_name = argv[++i];
    } else {
      place = argv[i];
    }
  }
  const Kind* kind = std::ranges::find(kinds, kind_name, &Kind::name);
  if (kind == std::end(kinds)) {
    fmt::print(stderr, "error: unknown kind {}\nusage: {}\n", kind_name, usage.text);
    return 2;
  }
  std::string made = (std::filesystem::temp_directory_path() / "fewbit-open-XXXXXX").string();
  const std::filesystem::path folder = place.empty() ? ::mkdtemp(made.data()) : place;
  std::filesystem::create_directories(folder);
  write_checkpoint(*kind, folder);
  const auto result = measure(*kind, folder);
  if (place.empty()) std::filesystem::remove_all(folder);
  if (result) return 0;
  fmt::print(stderr, "error: {}\n", result.error().message());
  return 1;
}
