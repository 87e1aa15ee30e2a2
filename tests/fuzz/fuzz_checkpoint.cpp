// SPDX-License-Identifier: Apache-2.0
// Any configs and indexes over any small tensors: identified, validated, decoded. The input has
// parts with a NUL byte between: JSON files, the first byte of each chooses its name, up to an
// empty part; a line "name dtype dim,dim…" a tensor, where "-" begins another shard and
// "__metadata__" is followed by JSON; bytes that are repeated to fill the tensors.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checked_model.hpp"
#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/safetensors_dtype.hpp"
#include "input_parts.hpp"

namespace {

constexpr std::array<std::string_view, 13> json_names = {"config.json",
                                                         "hf_quant_config.json",
                                                         "quantize_config.json",
                                                         "quant_config.json",
                                                         "quantization_config.json",
                                                         "params.json",
                                                         "adapter_config.json",
                                                         "generation_config.json",
                                                         "model.safetensors.index.json",
                                                         "consolidated.safetensors.index.json",
                                                         "quantization.json",
                                                         "inc_config.json",
                                                         "qconfig.json"};

struct Shard {
  std::string entries;
  std::uint64_t bytes = 0;

  void add(std::string_view entry) {
    if (!entries.empty()) entries += ',';
    entries += entry;
  }
};

// Empty when there is no such type, the shape is none, or there are too many bytes.
std::optional<std::uint64_t> bytes_of(std::string_view dtype, std::string_view dims) {
  const auto type = fewbit::dtype_from_safetensors(dtype);
  const auto shape = fewbit::parse_dims(dims);
  if (!type || !shape) return std::nullopt;
  const auto bytes = fewbit::tensor_bytes(*type, *shape);
  return bytes && *bytes <= fewbit::max_data_bytes ? std::optional(*bytes) : std::nullopt;
}

// line: "dtype dim,dim…"
void add_tensor(Shard& shard, std::string_view name, std::string_view line, std::uint64_t& left) {
  const std::string_view dtype = fewbit::take_until(line, ' ');
  const auto bytes = bytes_of(dtype, line);
  if (!bytes || *bytes > left || name.find_first_of("\"\\") != name.npos) return;
  left -= *bytes;
  const std::string begin = std::to_string(shard.bytes);
  shard.bytes += *bytes;
  shard.add(fewbit::raw_entry(name, dtype, "[" + std::string(line) + "]",
                              "[" + begin + "," + std::to_string(shard.bytes) + "]"));
}

std::vector<Shard> read_shards(std::string_view lines) {
  std::vector<Shard> shards(1);
  std::uint64_t left = fewbit::max_data_bytes;
  while (!lines.empty()) {
    std::string_view line = fewbit::take_until(lines, '\n');
    if (line == "-" && shards.size() < fewbit::max_files) {
      shards.emplace_back();
      continue;
    }
    const std::string_view name = fewbit::take_until(line, ' ');
    if (name == "__metadata__") {
      shards.back().add("\"__metadata__\":" + std::string(line));
    } else {
      add_tensor(shards.back(), name, line, left);
    }
  }
  return shards;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fewbit::ScratchFolder folder;
  fewbit::remove_files(folder);
  std::string_view input(reinterpret_cast<const char*>(data), size);
  for (auto file = fewbit::take_until(input, '\0'); !file.empty();
       file = fewbit::take_until(input, '\0')) {
    const auto choice = static_cast<unsigned char>(file.front() - '0') % json_names.size();
    folder.write(json_names[choice], file.substr(1));
  }
  const auto shards = read_shards(fewbit::take_until(input, '\0'));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    folder.write(fewbit::model_file(i, shards.size(), ".safetensors"),
                 fewbit::raw_safetensors("{" + shards[i].entries + "}",
                                         fewbit::filled(shards[i].bytes, input)));
  }
  fewbit::check_model(folder.path());
  return 0;
}
