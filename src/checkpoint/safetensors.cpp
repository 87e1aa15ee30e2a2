// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "checkpoint/foreign_content.hpp"
#include "checkpoint/json.hpp"
#include "checkpoint/limits.hpp"
#include "checkpoint/safetensors_dtype.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::size_t max_dimensions = 32;
// Values of one entry, or of the metadata.
constexpr JsonLimits header_json_limits{
    .max_bytes = safetensors_max_header_bytes, .max_depth = 16, .max_values = std::size_t{1} << 16};

// A JSON value for a message.
std::string shown(const Json* value) {
  if (value == nullptr) return "nothing";
  if (const auto* text = value->as_string()) return "the string " + quote(*text);
  if (value->is_number()) return value->number_text().substr(0, 40);
  return std::string("a JSON ") + value->kind();
}

Error corrupt(std::string what, std::string where) {
  return Error{ErrorCode::corrupt, std::move(what), std::move(where)};
}

// A file whose first rules fail is often no safetensors file at all: say what it is.
Error bad_start(std::span<const std::byte> file, std::string what, const std::string& where) {
  const std::string_view foreign = foreign_content(file);
  if (foreign.empty()) {
    // Every header is a JSON object.
    const bool other = file.size() > length_bytes && file[length_bytes] != std::byte{'{'};
    return corrupt(other ? "not a safetensors or GGUF file (" + what + ")" : std::move(what),
                   where);
  }
  return Error{foreign == "a GGUF file" ? ErrorCode::unsupported : ErrorCode::corrupt,
               fmt::format("expected a safetensors file, this is {}", foreign), where};
}

Result<std::string_view> header_text(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < length_bytes) {
    return bad_start(file,
                     fmt::format("header-too-small: the file has {} bytes, the header length alone "
                                 "takes {}",
                                 file.size(), length_bytes),
                     where);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (length > safetensors_max_header_bytes) {
    return bad_start(file,
                     fmt::format("header-too-large: header length {}, the limit is {}", length,
                                 safetensors_max_header_bytes),
                     where);
  }
  if (length > file.size() - length_bytes) {
    return bad_start(file,
                     fmt::format("header-length: header length {}, but only {} bytes follow it",
                                 length, file.size() - length_bytes),
                     where);
  }
  return std::string_view(reinterpret_cast<const char*>(file.data()) + length_bytes, length);
}

// One member of the header object. data_bytes: size of the data part; data_begin: its file offset.
class EntryParser {
 public:
  EntryParser(const Json::Member& member, std::string where)
      : name_(member.first), json_(member.second), where_(std::move(where)) {}

  Result<TensorInfo> parse(std::uint64_t data_bytes, std::uint64_t data_begin) const {
    if (!json_.is_object()) return fail("entry", "an object", &json_);
    TensorInfo info;
    info.name = name_;
    FEWBIT_TRY(info.dtype, dtype());
    FEWBIT_TRY(info.shape, shape());
    FEWBIT_TRY(const Range range, data_offsets(data_bytes));
    FEWBIT_TRY(info.bytes, size(info));
    if (range.end - range.begin != info.bytes) {
      return fail_text(fmt::format("size: data_offsets [{}, {}] span {} bytes, {} {} takes {}",
                                   range.begin, range.end, range.end - range.begin,
                                   dtype_name(info.dtype), shape_text(info.shape), info.bytes));
    }
    info.file_offset = data_begin + range.begin;
    return info;
  }

 private:
  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  Error fail_text(std::string what) const {
    return corrupt(std::move(what), where_ + ": tensor " + quote(name_));
  }
  Error fail(std::string_view rule, std::string_view expected, const Json* found) const {
    return fail_text(fmt::format("{}: expected {}, found {}", rule, expected, shown(found)));
  }

  Result<DType> dtype() const {
    const Json* value = json_.find("dtype");
    const std::string* text = value != nullptr ? value->as_string() : nullptr;
    const auto dtype = text != nullptr ? dtype_from_safetensors(*text) : std::nullopt;
    if (!dtype) return fail("dtype", "one of " + safetensors_known_names(), value);
    return *dtype;
  }

  Result<Shape> shape() const {
    const Json* value = json_.find("shape");
    const Json::Array* list = value != nullptr ? value->as_array() : nullptr;
    if (list == nullptr) return fail("shape", "an array of integers", value);
    if (list->size() > max_dimensions) {
      return fail_text(
          fmt::format("shape: {} dimensions, the limit is {}", list->size(), max_dimensions));
    }
    Shape shape;
    shape.reserve(list->size());
    for (const Json& element : *list) {
      const auto dimension = element.as_int64();
      if (!dimension || *dimension < 0) {
        return fail("shape", "integers from 0 to 2^63 - 1", &element);
      }
      shape.push_back(*dimension);
    }
    return shape;
  }

  Result<Range> data_offsets(std::uint64_t data_bytes) const {
    const Json* value = json_.find("data_offsets");
    const Json::Array* list = value != nullptr ? value->as_array() : nullptr;
    if (list == nullptr) return fail("data_offsets", "an array of two integers", value);
    if (list->size() != 2) {
      return fail_text(
          fmt::format("data_offsets: expected two integers, found {} values", list->size()));
    }
    std::uint64_t ends[2] = {};
    for (std::size_t i = 0; i < 2; ++i) {
      const auto offset = (*list)[i].as_uint64();
      if (!offset) return fail("data_offsets", "integers from 0 to 2^64 - 1", &(*list)[i]);
      ends[i] = *offset;
    }
    if (ends[0] > ends[1]) {
      return fail_text(fmt::format("data_offsets: begin {} is behind end {}", ends[0], ends[1]));
    }
    if (ends[1] > data_bytes) {
      return fail_text(fmt::format(
          "data-incomplete: data_offsets [{}, {}], but the file has only {} bytes of data", ends[0],
          ends[1], data_bytes));
    }
    return Range{ends[0], ends[1]};
  }

  Result<std::uint64_t> size(const TensorInfo& info) const {
    // A zero dimension must not hide that the others overflow: strides are products too.
    Shape extents = info.shape;
    std::replace(extents.begin(), extents.end(), std::int64_t{0}, std::int64_t{1});
    const auto elements = shape_elements(extents);
    if (!elements) return fail_text("overflow: " + elements.error().what);
    const auto bytes = tensor_bytes(info.dtype, info.shape);
    if (!bytes) {
      const bool overflow = bytes.error().code == ErrorCode::limit;
      return fail_text((overflow ? "overflow: " : "misaligned: ") + bytes.error().what);
    }
    return *bytes;
  }

  const std::string& name_;
  const Json& json_;
  std::string where_;
};

Result<std::map<std::string, std::string>> parse_metadata(const Json& json,
                                                          const std::string& where) {
  const Json::Object* object = json.as_object();
  if (object == nullptr) {
    return corrupt("metadata: expected an object of strings, found " + shown(&json), where);
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : *object) {
    const std::string* text = value.as_string();
    if (text == nullptr) {
      return corrupt(
          fmt::format("metadata: expected a string for {}, found {}", quote(key), shown(&value)),
          where);
    }
    metadata.emplace(key, *text);
  }
  return metadata;
}

// Every byte of [data_begin, file_bytes) belongs to exactly one tensor. Sorts the tensors.
Result<void> check_coverage(std::vector<TensorInfo>& tensors, std::uint64_t data_begin,
                            std::uint64_t file_bytes, const std::string& where) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.file_offset, a.bytes, a.name) < std::tie(b.file_offset, b.bytes, b.name);
  });
  std::uint64_t covered = data_begin;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& info : tensors) {
    const std::uint64_t begin = info.file_offset - data_begin;
    if (info.file_offset < covered) {
      return corrupt(fmt::format("overlap: begins at data byte {}, where {} ends only at {}", begin,
                                 quote(previous->name), covered - data_begin),
                     where + ": tensor " + quote(info.name));
    }
    if (info.file_offset > covered) {
      return corrupt(fmt::format("hole: begins at data byte {}, bytes {} to {} belong to no tensor",
                                 begin, covered - data_begin, begin),
                     where + ": tensor " + quote(info.name));
    }
    covered += info.bytes;
    previous = &info;
  }
  if (covered != file_bytes) {
    return corrupt(fmt::format("data-size: the tensors end at file byte {}, the file has {} bytes",
                               covered, file_bytes),
                   where);
  }
  return {};
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file,
                                            const std::string& where) {
  FEWBIT_TRY(const std::string_view text, header_text(file, where));
  const std::uint64_t data_begin = length_bytes + text.size();
  const std::uint64_t data_bytes = file.size() - data_begin;
  SafetensorsHeader header;
  const auto take = [&](const Json::Member& member) -> Result<void> {
    if (member.first == safetensors_metadata_key) {
      FEWBIT_TRY(header.metadata, parse_metadata(member.second, where));
      return {};
    }
    if (header.tensors.size() == max_tensors_in_file) {
      return Error{ErrorCode::limit,
                   fmt::format("tensor-count: more than {} tensors, the limit of a file",
                               max_tensors_in_file),
                   where};
    }
    FEWBIT_TRY(auto info, EntryParser(member, where).parse(data_bytes, data_begin));
    header.tensors.push_back(std::move(info));
    return {};
  };
  FEWBIT_TRY(const Json root,
             Json::parse_members(text, where + " (header)", header_json_limits, take));
  if (!root.is_object()) {
    return corrupt("header: expected an object, found " + shown(&root), where);
  }
  FEWBIT_TRY(check_coverage(header.tensors, data_begin, file.size(), where));
  return header;
}

}  // namespace fewbit
