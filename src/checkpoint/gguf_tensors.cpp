// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "checkpoint/gguf.hpp"
#include "checkpoint/gguf_types.hpp"
#include "checkpoint/limits.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"

namespace fewbit {
namespace {

Result<std::string_view> read_name(GgufCursor& cursor, std::uint64_t i) {
  const std::string what = fmt::format("tensor {}", i);
  FEWBIT_TRY(const std::string_view name, cursor.string("the name of " + what));
  if (name.empty() || name.size() > gguf_max_name_bytes) {
    return cursor.fail("tensor-name",
                       fmt::format("a name of {} bytes, expected 1 to {}: {}", name.size(),
                                   gguf_max_name_bytes, quote(name)),
                       what);
  }
  if (!is_utf8(name)) return cursor.fail("tensor-name", quote(name) + " is no UTF-8", what);
  // Engines keep names as C strings: two names would become one.
  if (name.find('\0') != name.npos) {
    return cursor.fail("tensor-name", quote(name) + " holds a zero byte", what);
  }
  return name;
}

Result<std::vector<std::int64_t>> read_dims(GgufCursor& cursor, const std::string& item) {
  FEWBIT_TRY(const auto count, cursor.number<std::uint32_t>("the number of dimensions of " + item));
  if (count < 1 || count > gguf_max_dimensions) {
    return cursor.fail("tensor-dims",
                       fmt::format("{} dimensions, expected 1 to {}", count, gguf_max_dimensions),
                       item);
  }
  std::vector<std::int64_t> dims;
  std::int64_t product = 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    FEWBIT_TRY(const std::uint64_t dim, cursor.length("a dimension of " + item));
    const auto value = checked_cast<std::int64_t>(dim);
    if (!value || *value == 0) {
      return cursor.fail("tensor-dims",
                         fmt::format("dimension {} is {}, expected 1 to 2^63 - 1", i, dim), item);
    }
    const auto next = checked_mul(product, *value);
    if (!next) {
      return cursor.fail(
          "overflow",
          fmt::format("{} times dimension {} of {} is above 2^63 - 1", product, i, *value), item);
    }
    product = *next;
    dims.push_back(*value);
  }
  return dims;
}

// One way of reading the ids that have more than one meaning: bit i of `pick` chooses the second
// row of the i-th such id.
struct Meaning {
  const std::vector<std::int32_t>* ambiguous = nullptr;
  unsigned pick = 0;

  // nullptr for a type without a known extent.
  const GgufType* row(std::int32_t id) const {
    const auto rows = gguf_types_of(id);
    if (rows.empty() || rows.front().elements == 0) return nullptr;
    const auto at = std::find(ambiguous->begin(), ambiguous->end(), id);
    const bool second = at != ambiguous->end() && (pick >> (at - ambiguous->begin()) & 1U) != 0;
    return &rows[second ? 1 : 0];
  }
};

std::vector<std::int32_t> ambiguous_ids(const std::vector<GgufEntry>& entries) {
  std::vector<std::int32_t> ids;
  for (const GgufEntry& entry : entries) {
    if (gguf_types_of(entry.type).size() > 1 &&
        std::find(ids.begin(), ids.end(), entry.type) == ids.end()) {
      ids.push_back(entry.type);
    }
  }
  return ids;
}

class Placer {
 public:
  Placer(const std::vector<GgufEntry>& entries, const GgufPlacement& placement,
         const GgufCursor& cursor)
      : entries_(entries), placement_(placement), cursor_(cursor) {}

  // Where the data of the last tensor ends, from the begin of the data.
  std::uint64_t end() const { return end_; }

  Result<std::vector<TensorInfo>> place(const Meaning& meaning) {
    std::vector<TensorInfo> tensors;
    tensors.reserve(entries_.size());
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const GgufEntry& entry = entries_[i];
      if (entry.offset != next) {
        return fail(entry, "offset",
                    fmt::format("offset {}, expected {}, the padded sizes of the {} tensors before",
                                entry.offset, next, i));
      }
      const GgufType* type = meaning.row(entry.type);
      FEWBIT_TRY(TensorInfo info, type != nullptr ? sized(entry, *type) : opaque(i));
      FEWBIT_TRY(next, padded_end(entry, info.bytes));
      tensors.push_back(std::move(info));
    }
    return tensors;
  }

 private:
  Error fail(const GgufEntry& entry, std::string_view rule, const std::string& what) const {
    return cursor_.fail(rule, what, "tensor " + quote(entry.name));
  }

  std::uint64_t data_bytes() const {
    return placement_.file_bytes - std::min(placement_.file_bytes, placement_.data_begin);
  }

  // Checks that the data lies in the file; where the next tensor begins.
  Result<std::uint64_t> padded_end(const GgufEntry& entry, std::uint64_t bytes) {
    const auto end = checked_add(entry.offset, bytes);
    const auto padded = end ? checked_round_up(*end, placement_.alignment) : std::nullopt;
    if (!padded) {
      return fail(entry, "overflow",
                  fmt::format("offset {} and {} bytes are above 2^64 - 1", entry.offset, bytes));
    }
    if (*end > data_bytes()) {
      return fail(entry, "data-incomplete",
                  fmt::format("bytes {} to {} of the data, but the file has only {} of them",
                              entry.offset, *end, data_bytes()));
    }
    end_ = *end;
    return *padded;
  }

  Result<TensorInfo> sized(const GgufEntry& entry, const GgufType& type) const {
    FEWBIT_TRY(TensorInfo info,
               gguf_tensor_info(entry, type, cursor_.where("tensor " + quote(entry.name))));
    info.file_offset = placement_.data_begin + entry.offset;
    return info;
  }

  // A type without known extent: everything up to the next tensor or the end of the file.
  Result<TensorInfo> opaque(std::size_t i) const {
    const GgufEntry& entry = entries_[i];
    const std::uint64_t end = i + 1 < entries_.size() ? entries_[i + 1].offset : data_bytes();
    if (end <= entry.offset || (i + 1 < entries_.size() && end % placement_.alignment != 0)) {
      return fail(entry, "offset",
                  fmt::format("{} begins at {} and the data behind it at {}, expected a later "
                              "multiple of {}",
                              gguf_type_name(entry.type), entry.offset, end, placement_.alignment));
    }
    TensorInfo info;
    info.name = entry.name;
    info.bytes = end - entry.offset;
    info.file_offset = placement_.data_begin + entry.offset;
    info.blocks = BlockFormat{entry.type, 0, 0, {entry.dims.rbegin(), entry.dims.rend()}};
    info.shape = {static_cast<std::int64_t>(info.bytes)};
    return info;
  }

  const std::vector<GgufEntry>& entries_;
  const GgufPlacement& placement_;
  const GgufCursor& cursor_;
  std::uint64_t end_ = 0;
};

std::string meaning_text(const Meaning& meaning) {
  std::string text;
  for (const std::int32_t id : *meaning.ambiguous) {
    const GgufType* type = meaning.row(id);
    text += fmt::format("{}type {} as {} ({} elements in {} bytes)", text.empty() ? "" : ", ", id,
                        type->name, type->elements, type->bytes);
  }
  return text;
}

struct Reading {
  Meaning meaning;
  std::vector<TensorInfo> tensors;
  std::uint64_t unused_bytes = 0;  // behind the last tensor and its padding
};

Result<Reading> read_as(const Meaning& meaning, const std::vector<GgufEntry>& entries,
                        const GgufPlacement& placement, const GgufCursor& cursor) {
  Placer placer(entries, placement, cursor);
  FEWBIT_TRY(auto tensors, placer.place(meaning));
  const std::uint64_t used = placement.data_begin + round_up(placer.end(), placement.alignment);
  const std::uint64_t unused = placement.file_bytes > used ? placement.file_bytes - used : 0;
  return Reading{meaning, std::move(tensors), unused};
}

}  // namespace

Result<TensorInfo> gguf_tensor_info(const GgufEntry& entry, const GgufType& type,
                                    const std::string& where) {
  TensorInfo info;
  info.name = entry.name;
  info.shape.assign(entry.dims.rbegin(), entry.dims.rend());
  const std::int64_t row = entry.dims.front();
  if (row % type.elements != 0) {
    return Error{ErrorCode::corrupt,
                 fmt::format("tensor-block: rows of {} elements, but a block of {} has {}", row,
                             type.name, type.elements),
                 where};
  }
  Shape stored = info.shape;
  stored.back() = row / type.elements;
  FEWBIT_TRY(const std::int64_t blocks, shape_elements(stored));
  const auto bytes = checked_mul(blocks, std::int64_t{type.bytes});
  if (!bytes) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("overflow: {} blocks of {} bytes are above 2^63 - 1", blocks, type.bytes),
        where};
  }
  info.bytes = static_cast<std::uint64_t>(*bytes);
  if (type.dtype) {
    info.dtype = *type.dtype;
    return info;
  }
  info.blocks = BlockFormat{type.id, type.elements, type.bytes, std::move(info.shape)};
  stored.back() *= type.bytes;
  info.shape = std::move(stored);
  return info;
}

Result<std::vector<GgufEntry>> read_gguf_entries(GgufCursor& cursor, std::uint64_t count) {
  // name length, one byte of name, number of dimensions, one dimension, type, offset
  const std::uint64_t smallest = 2 * cursor.length_bytes() + 17;
  if (count > cursor.remaining() / smallest) {
    return cursor.fail("tensor-count", fmt::format("{} tensors, but only {} bytes follow and an "
                                                   "entry takes at least {}",
                                                   count, cursor.remaining(), smallest));
  }
  if (count > max_tensors_in_file) {
    return Error{ErrorCode::limit,
                 fmt::format("tensor-count: {} tensors, the limit of a file is {}", count,
                             max_tensors_in_file),
                 cursor.where({})};
  }
  std::vector<GgufEntry> entries;
  entries.reserve(count);
  std::unordered_set<std::string_view> names;
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufEntry entry;
    FEWBIT_TRY(entry.name, read_name(cursor, i));
    const std::string item = "tensor " + quote(entry.name);
    if (!names.insert(entry.name).second) {
      return cursor.fail("tensor-twice", fmt::format("the name of tensor {} stands before", i),
                         item);
    }
    FEWBIT_TRY(entry.dims, read_dims(cursor, item));
    FEWBIT_TRY(const auto type, cursor.number<std::uint32_t>("the type of " + item));
    const auto id = checked_cast<std::int32_t>(type);
    if (!id)
      return cursor.fail("tensor-type", fmt::format("type {}, expected below 2^31", type), item);
    entry.type = *id;
    FEWBIT_TRY(entry.offset, cursor.number<std::uint64_t>("the offset of " + item));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::vector<TensorInfo>> place_gguf_tensors(const std::vector<GgufEntry>& entries,
                                                   const GgufPlacement& placement,
                                                   const GgufCursor& cursor,
                                                   std::vector<Finding>& findings) {
  const std::vector<std::int32_t> ambiguous = ambiguous_ids(entries);
  std::optional<Reading> taken;
  std::optional<Error> first_error;
  for (unsigned pick = 0; pick < 1U << ambiguous.size(); ++pick) {
    const Meaning meaning{&ambiguous, pick};
    auto reading = read_as(meaning, entries, placement, cursor);
    if (!reading) {
      if (!first_error) first_error = reading.error();
    } else if (!taken || (taken->unused_bytes > 0 && reading->unused_bytes == 0)) {
      taken = *std::move(reading);
    } else if (taken->unused_bytes == 0 && reading->unused_bytes == 0) {
      findings.push_back({Level::warning, "gguf-type-ambiguous", "",
                          "the offsets also fit " + meaning_text(meaning),
                          "one reading; taken: " + meaning_text(taken->meaning)});
    }
  }
  if (!taken) return *first_error;
  if (taken->unused_bytes > 0) {
    findings.push_back({Level::warning, "trailing-bytes", "",
                        fmt::format("{} bytes behind the last tensor", taken->unused_bytes), "0"});
  }
  return std::move(taken->tensors);
}

}  // namespace fewbit
