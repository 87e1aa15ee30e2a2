// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_metadata.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/limits.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"

namespace fewbit {
namespace {

constexpr std::uint64_t max_array_elements = std::uint64_t{1} << 30;

// Bytes of one element; 0 for strings and arrays.
std::uint64_t kind_bytes(GgufKind kind) {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::i8:
    case GgufKind::boolean:
      return 1;
    case GgufKind::u16:
    case GgufKind::i16:
      return 2;
    case GgufKind::u32:
    case GgufKind::i32:
    case GgufKind::f32:
      return 4;
    case GgufKind::u64:
    case GgufKind::i64:
    case GgufKind::f64:
      return 8;
    case GgufKind::string:
    case GgufKind::array:
      break;
  }
  return 0;
}

bool is_kind(GgufKind kind) { return kind <= GgufKind::f64; }

template <class T>
T element(std::span<const std::byte> bytes, std::uint64_t i) {
  T value{};
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// The string that begins with its length at byte `at`, which is moved behind it.
std::string_view string_at(std::span<const std::byte> bytes, std::uint64_t length_bytes,
                           std::uint64_t& at) {
  const auto rest = bytes.subspan(at);
  const std::uint64_t length =
      length_bytes == 4 ? element<std::uint32_t>(rest, 0) : element<std::uint64_t>(rest, 0);
  at += length_bytes + length;
  return {reinterpret_cast<const char*>(rest.data()) + length_bytes, length};
}

Error bad_kind(const GgufCursor& cursor, GgufKind kind, std::string_view key) {
  return cursor.fail(
      "kv-type", fmt::format("value type {}, expected 0 to 12", static_cast<std::uint32_t>(kind)),
      "key " + quote(key));
}

Result<std::string_view> read_key(GgufCursor& cursor, std::uint64_t i) {
  const std::string what = fmt::format("key {}", i);
  FEWBIT_TRY(const std::string_view key, cursor.string(what));
  if (key.empty() || key.size() > gguf_max_key_bytes) {
    return cursor.fail(
        "kv-key",
        fmt::format("a key of {} bytes, expected 1 to {}", key.size(), gguf_max_key_bytes), what);
  }
  if (!is_utf8(key)) return cursor.fail("kv-key", quote(key) + " is no UTF-8", what);
  if (key.find('\0') != key.npos) {
    return cursor.fail("kv-key", quote(key) + " holds a zero byte", what);
  }
  return key;
}

}  // namespace

std::string gguf_kind_name(GgufKind kind) {
  constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
  const auto number = static_cast<std::uint32_t>(kind);
  return is_kind(kind) ? std::string(names[number]) : fmt::format("kind {}", number);
}

Result<GgufValue> GgufValue::read(GgufCursor& cursor, GgufKind kind, std::string_view key) {
  const std::string what = "the value of " + quote(key);
  GgufValue value;
  value.length_bytes_ = cursor.length_bytes();
  value.kind_ = kind;
  if (kind == GgufKind::array) {
    FEWBIT_TRY(const std::uint32_t element_kind, cursor.number<std::uint32_t>(what));
    value.kind_ = static_cast<GgufKind>(element_kind);
    value.is_array_ = true;
    FEWBIT_TRY(value.count_, cursor.length(what));
    if (value.kind_ == GgufKind::array) {
      return cursor.fail("kv-array", "an array of arrays, which no reader takes",
                         "key " + quote(key));
    }
  }
  if (!is_kind(value.kind_)) return bad_kind(cursor, value.kind_, key);
  const bool strings = value.kind_ == GgufKind::string;
  const std::uint64_t smallest = strings ? value.length_bytes_ : kind_bytes(value.kind_);
  if (value.count_ > max_array_elements || value.count_ * smallest > cursor.remaining()) {
    return cursor.fail(
        value.is_array_ ? "kv-array" : "truncated",
        fmt::format("{} elements of {}, but {} bytes follow and the limit is {} elements",
                    value.count_, gguf_kind_name(value.kind_), cursor.remaining(),
                    max_array_elements),
        "key " + quote(key));
  }
  if (strings) {
    FEWBIT_TRY(value.bytes_, cursor.strings(value.count_, what));
  } else {
    FEWBIT_TRY(value.bytes_, cursor.take(value.count_ * smallest, what));
  }
  return value;
}

std::optional<bool> GgufValue::as_bool() const {
  if (is_array_ || kind_ != GgufKind::boolean) return std::nullopt;
  return bytes_[0] != std::byte{0};
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (is_array_ || kind_ != GgufKind::string) return std::nullopt;
  std::uint64_t at = 0;
  return string_at(bytes_, length_bytes_, at);
}

std::optional<std::int64_t> GgufValue::int64_at(std::uint64_t i) const {
  if (i >= count_) return std::nullopt;
  switch (kind_) {
    case GgufKind::u8:
      return element<std::uint8_t>(bytes_, i);
    case GgufKind::i8:
      return element<std::int8_t>(bytes_, i);
    case GgufKind::u16:
      return element<std::uint16_t>(bytes_, i);
    case GgufKind::i16:
      return element<std::int16_t>(bytes_, i);
    case GgufKind::u32:
      return element<std::uint32_t>(bytes_, i);
    case GgufKind::i32:
      return element<std::int32_t>(bytes_, i);
    case GgufKind::u64:
      return checked_cast<std::int64_t>(element<std::uint64_t>(bytes_, i));
    case GgufKind::i64:
      return element<std::int64_t>(bytes_, i);
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::double_at(std::uint64_t i) const {
  if (i >= count_) return std::nullopt;
  switch (kind_) {
    case GgufKind::f32:
      return static_cast<double>(element<float>(bytes_, i));
    case GgufKind::f64:
      return element<double>(bytes_, i);
    case GgufKind::u64:
      return static_cast<double>(element<std::uint64_t>(bytes_, i));
    default:
      break;
  }
  const auto integer = int64_at(i);
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

std::vector<std::string_view> GgufValue::strings() const {
  std::vector<std::string_view> all;
  if (!is_array_ || kind_ != GgufKind::string) return all;
  all.reserve(count_);
  for (std::uint64_t at = 0; at < bytes_.size();) {
    all.push_back(string_at(bytes_, length_bytes_, at));
  }
  return all;
}

std::string GgufValue::element_text(std::uint64_t i) const {
  if (kind_ == GgufKind::boolean) return bytes_[i] != std::byte{0} ? "true" : "false";
  if (kind_ == GgufKind::u64) return std::to_string(element<std::uint64_t>(bytes_, i));
  if (kind_ == GgufKind::f32) return fmt::format("{}", element<float>(bytes_, i));
  if (const auto integer = int64_at(i)) return std::to_string(*integer);
  return fmt::format("{}", double_at(i).value_or(0));
}

std::string GgufValue::text() const {
  constexpr std::uint64_t shown = 8;
  if (!is_array_) {
    const auto text = as_string();
    return text ? std::string(*text) : element_text(0);
  }
  std::string out = fmt::format("[{} x {}]", count_, gguf_kind_name(kind_));
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < std::min(count_, shown); ++i) {
    out += i == 0 ? " " : ", ";
    out +=
        kind_ == GgufKind::string ? quote(string_at(bytes_, length_bytes_, at)) : element_text(i);
  }
  return count_ > shown ? out + ", …" : out;
}

Result<GgufMetadata> GgufMetadata::read(GgufCursor& cursor, std::uint64_t count) {
  // key length, one byte of key, kind, one byte of value
  const std::uint64_t smallest = cursor.length_bytes() + 6;
  if (count > cursor.remaining() / smallest) {
    return cursor.fail("kv-count", fmt::format("{} key-value pairs, but only {} bytes follow and a "
                                               "pair takes at least {}",
                                               count, cursor.remaining(), smallest));
  }
  if (count > max_gguf_pairs) {
    return Error{
        ErrorCode::limit,
        fmt::format("kv-count: {} key-value pairs, the limit is {}", count, max_gguf_pairs),
        cursor.where({})};
  }
  GgufMetadata metadata;
  metadata.entries_.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    FEWBIT_TRY(const std::string_view key, read_key(cursor, i));
    FEWBIT_TRY(const auto kind, cursor.number<std::uint32_t>("the value type of " + quote(key)));
    FEWBIT_TRY(GgufValue value, GgufValue::read(cursor, static_cast<GgufKind>(kind), key));
    metadata.entries_.push_back({key, value});
  }
  auto& entries = metadata.entries_;
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  const auto twin =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.key == b.key; });
  if (twin != entries.end()) {
    return cursor.fail("kv-twice",
                       fmt::format("{} stands twice: {} and {}", quote(twin->key),
                                   quote(twin->value.text()), quote((twin + 1)->value.text())));
  }
  return metadata;
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), key,
                       [](const Entry& entry, std::string_view k) { return entry.key < k; });
  return at != entries_.end() && at->key == key ? &at->value : nullptr;
}

std::optional<std::string_view> GgufMetadata::architecture() const {
  const GgufValue* value = find("general.architecture");
  return value != nullptr ? value->as_string() : std::nullopt;
}

const GgufValue* GgufMetadata::find_of_architecture(std::string_view key) const {
  const auto prefix = architecture();
  return prefix ? find(fmt::format("{}.{}", *prefix, key)) : nullptr;
}

}  // namespace fewbit
