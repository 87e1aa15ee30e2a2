// SPDX-License-Identifier: Apache-2.0
// Any bytes as a whole file, as a header before data of any small size, and as an index.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/safetensors.hpp"
#include "checkpoint/shard_index.hpp"

namespace {

// What every user of an accepted header relies on.
void check_file(std::span<const std::byte> file) {
  const auto header = fewbit::parse_safetensors(file, "fuzz");
  if (!header) return;
  std::uint64_t covered = header->tensors.empty() ? file.size() : header->tensors[0].file_offset;
  for (const fewbit::TensorInfo& info : header->tensors) {
    const auto bytes = fewbit::tensor_bytes(info.dtype, info.shape);
    if (info.file_offset != covered || !bytes || *bytes != info.bytes) std::abort();
    covered += info.bytes;
  }
  if (covered != file.size()) std::abort();
}

void check_index(std::string_view text) {
  const auto index = fewbit::parse_shard_index(text, "fuzz");
  if (!index) return;
  for (const auto& entry : index->entries) {
    const std::filesystem::path file = index->files.at(static_cast<std::size_t>(entry.shard));
    if (file.is_absolute() || *file.lexically_normal().begin() == "..") std::abort();
  }
  std::vector<fewbit::Finding> findings;
  (void)fewbit::check_against_shards(*index, {}, "fuzz", findings);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_file(fewbit::as_bytes(input));
  check_index(input);
  if (size < 2) return 0;
  const std::size_t data_size = data[0] + 256U * (data[1] % 16U);
  check_file(
      fewbit::as_bytes(fewbit::raw_safetensors(input.substr(2), std::string(data_size, '\0'))));
  return 0;
}
