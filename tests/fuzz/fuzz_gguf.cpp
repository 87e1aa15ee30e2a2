// SPDX-License-Identifier: Apache-2.0
// Any bytes as a whole GGUF file, and as what follows the magic and the version.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/gguf.hpp"
#include "checkpoint/raw_gguf.hpp"

namespace {

void check_values(const fewbit::GgufMetadata& metadata) {
  for (const auto& entry : metadata.entries()) {
    const fewbit::GgufValue& value = entry.value;
    if (metadata.find(entry.key) == nullptr) std::abort();
    if (value.is_array() && value.kind() == fewbit::GgufKind::string &&
        value.strings().size() != value.size()) {
      std::abort();
    }
    if (value.size() > 0) (void)value.double_at(value.size() - 1);
    if (value.double_at(value.size())) std::abort();
    (void)value.text();
  }
}

// What every user of an accepted header relies on.
void check_file(std::string_view text) {
  const auto file = std::as_bytes(std::span(text));
  const auto header = fewbit::parse_gguf(file, "fuzz");
  if (!header) return;
  check_values(header->metadata);
  std::uint64_t end = header->data_begin;
  for (const fewbit::TensorInfo& info : header->tensors) {
    const auto bytes = fewbit::tensor_bytes(info.dtype, info.shape);
    if (!bytes || *bytes != info.bytes || info.file_offset < end) std::abort();
    end = info.file_offset + info.bytes;
    if (end > file.size() || end < info.file_offset) std::abort();
    if (info.blocks && info.blocks->block_elements > 0 &&
        info.blocks->shape.back() % info.blocks->block_elements != 0) {
      std::abort();
    }
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_file(input);
  if (size == 0) return 0;
  const std::uint32_t version = 1 + data[0] % 3U;
  check_file("GGUF" + fewbit::little_endian(version, 4) + std::string(input.substr(1)));
  return 0;
}
