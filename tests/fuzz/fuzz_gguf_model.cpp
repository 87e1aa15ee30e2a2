// SPDX-License-Identifier: Apache-2.0
// A GGUF model of any pairs and any small tensors: identified, validated, decoded. The input has
// three parts with a NUL byte between: a line "key kind value" a pair, where the kind is a number
// or, before values with commas between, "a" and a number; a line "name type dim,dim… bytes" a
// tensor, dims slowest first, bytes only where they are not those of the type, where "-" begins
// another file of a split model; bytes that are repeated to fill the tensors.
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checked_model.hpp"
#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/gguf_types.hpp"
#include "checkpoint/raw_gguf.hpp"
#include "input_parts.hpp"

namespace {

using fewbit::GgufKind;
using fewbit::little_endian;
using fewbit::RawGguf;
using fewbit::take_until;

constexpr std::uint64_t alignment = 32;
constexpr std::array<int, 13> bytes_of_kinds = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::string value_bytes(const RawGguf& file, std::uint32_t kind, std::string_view text) {
  if (kind == static_cast<std::uint32_t>(GgufKind::string)) return file.string(text);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  if (kind == static_cast<std::uint32_t>(GgufKind::f32)) {
    return little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)), 4);
  }
  if (kind == static_cast<std::uint32_t>(GgufKind::f64)) {
    return little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  const auto integer = fewbit::parse_number<std::int64_t>(text).value_or(0);
  const int bytes = kind < bytes_of_kinds.size() ? bytes_of_kinds.at(kind) : 4;
  return little_endian(static_cast<std::uint64_t>(integer), bytes);
}

void add_pair(RawGguf& file, std::string_view line) {
  const std::string_view key = take_until(line, ' ');
  std::string_view number = take_until(line, ' ');
  const bool is_array = number.starts_with('a');
  if (is_array) number.remove_prefix(1);
  const auto kind = fewbit::parse_number<std::uint32_t>(number);
  if (!kind) return;
  if (!is_array) {
    file.kv(key, *kind, value_bytes(file, *kind, line));
    return;
  }
  std::string elements;
  std::uint64_t count = 0;
  for (; !line.empty(); ++count) elements += value_bytes(file, *kind, take_until(line, ','));
  file.kv(key, static_cast<std::uint32_t>(GgufKind::array),
          little_endian(*kind, 4) + file.length(count) + elements);
}

// Of whole blocks; a unit of alignment where the type has no known extent.
std::optional<std::uint64_t> bytes_of(std::uint32_t id, const fewbit::Shape& shape) {
  const auto types = fewbit::gguf_types_of(static_cast<std::int32_t>(id));
  if (types.empty() || types.front().elements <= 0) return alignment;
  const auto elements = fewbit::tensor_bytes(fewbit::DType::u8, shape);
  if (!elements || *elements > 8 * fewbit::max_data_bytes) return std::nullopt;
  return *elements / static_cast<std::uint64_t>(types.front().elements) *
         static_cast<std::uint64_t>(types.front().bytes);
}

struct Part {
  RawGguf file;
  std::uint64_t bytes = 0;
};

void add_tensor(Part& part, std::string_view line, std::uint64_t& left) {
  const std::string_view name = take_until(line, ' ');
  const auto id = fewbit::parse_number<std::uint32_t>(take_until(line, ' '));
  const auto shape = fewbit::parse_dims(take_until(line, ' '));
  if (!id || !shape) return;
  auto bytes = fewbit::parse_number<std::uint64_t>(line);
  if (!bytes) bytes = bytes_of(*id, *shape);
  if (!bytes || *bytes > left) return;
  left -= *bytes;
  part.file.tensor(name, {shape->rbegin(), shape->rend()}, *id, part.bytes);
  part.bytes += (*bytes + alignment - 1) / alignment * alignment;
}

std::vector<Part> read_parts(std::string_view lines) {
  std::vector<Part> parts(1);
  std::uint64_t left = fewbit::max_data_bytes;
  while (!lines.empty()) {
    const std::string_view line = take_until(lines, '\n');
    if (line == "-" && parts.size() < fewbit::max_files) {
      parts.emplace_back();
    } else {
      add_tensor(parts.back(), line, left);
    }
  }
  return parts;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fewbit::ScratchFolder folder;
  fewbit::remove_files(folder);
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string_view pairs = take_until(input, '\0');
  std::vector<Part> parts = read_parts(take_until(input, '\0'));
  while (!pairs.empty()) add_pair(parts.front().file, take_until(pairs, '\n'));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].file.data(fewbit::filled(parts[i].bytes, input));
    folder.write(fewbit::model_file(i, parts.size(), ".gguf"), parts[i].file.build(alignment));
  }
  fewbit::check_model(folder.path());
  return 0;
}
