// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "checkpoint/foreign_content.hpp"
#include "checkpoint/gguf_tensors.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

Result<std::uint32_t> read_version(GgufCursor& cursor, const std::string& where) {
  FEWBIT_TRY(const auto version, cursor.number<std::uint32_t>("the version"));
  if (version >= 1 && version <= 3) return version;
  // A small number with its bytes swapped: the whole file is stored in the other byte order.
  if (version != 0 && (version & 0xFFFFU) == 0) {
    return Error{ErrorCode::unsupported,
                 fmt::format("byte-order: version {} stored big-endian, fewbit reads little-endian "
                             "files only",
                             __builtin_bswap32(version)),
                 where};
  }
  if (version == 0) return cursor.fail("version", "version 0, expected 1 to 3");
  return Error{ErrorCode::unsupported, fmt::format("version: {}, expected 1 to 3", version), where};
}

Result<std::uint64_t> read_alignment(const GgufMetadata& metadata, const GgufCursor& cursor) {
  const GgufValue* value = metadata.find(gguf_alignment_key);
  if (value == nullptr) return gguf_default_alignment;
  const std::string item = "key " + quote(gguf_alignment_key);
  if (value->is_array() || value->kind() != GgufKind::u32) {
    return cursor.fail(
        "alignment",
        fmt::format("of type {}{}, expected u32", value->is_array() ? "array of " : "",
                    gguf_kind_name(value->kind())),
        item);
  }
  const auto alignment = static_cast<std::uint64_t>(value->as_int64().value_or(0));
  if (!std::has_single_bit(alignment)) {
    return cursor.fail("alignment", fmt::format("{}, expected a power of two", alignment), item);
  }
  return alignment;
}

}  // namespace

bool is_gguf(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return text.starts_with(gguf_magic);
}

Result<GgufHeader> parse_gguf(std::span<const std::byte> file, const std::string& where) {
  GgufCursor cursor(file, where);
  if (!is_gguf(file)) {
    const std::string_view foreign = foreign_content(file);
    return cursor.fail("magic", foreign.empty()
                                    ? fmt::format("the file does not begin with {}", gguf_magic)
                                    : fmt::format("expected a GGUF file, this is {}", foreign));
  }
  FEWBIT_TRY(cursor.take(gguf_magic.size(), "the magic"));
  GgufHeader header;
  FEWBIT_TRY(header.version, read_version(cursor, where));
  cursor.set_version(header.version);
  FEWBIT_TRY(const std::uint64_t tensor_count, cursor.length("the number of tensors"));
  FEWBIT_TRY(const std::uint64_t kv_count, cursor.length("the number of key-value pairs"));
  FEWBIT_TRY(header.metadata, GgufMetadata::read(cursor, kv_count));
  FEWBIT_TRY(header.alignment, read_alignment(header.metadata, cursor));
  FEWBIT_TRY(const auto entries, read_gguf_entries(cursor, tensor_count));
  // Fits: the position is below 2^63 and the alignment below 2^32.
  header.data_begin = round_up(cursor.position(), header.alignment);
  const GgufPlacement placement{header.alignment, header.data_begin, file.size()};
  FEWBIT_TRY(header.tensors, place_gguf_tensors(entries, placement, cursor, header.findings));
  for (Finding& finding : header.findings) finding.where = where;
  return header;
}

}  // namespace fewbit
