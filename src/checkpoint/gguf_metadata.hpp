// SPDX-License-Identifier: Apache-2.0
// The key-value pairs of a GGUF header, with their types. Values lie in the file and are decoded
// when asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf_cursor.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

constexpr std::size_t gguf_max_key_bytes = 65535;

// The numbers are those of the file format.
enum class GgufKind : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
// "u32"; "kind 13" for a number outside the format.
std::string gguf_kind_name(GgufKind kind);

// One value, or an array of values of one kind.
class GgufValue {
 public:
  // Reads and checks a value of `kind`; `key` names it in errors (rules kv-type, kv-array,
  // truncated).
  static Result<GgufValue> read(GgufCursor& cursor, GgufKind kind, std::string_view key);

  // Of the elements, for an array.
  GgufKind kind() const { return kind_; }
  bool is_array() const { return is_array_; }
  std::uint64_t size() const { return count_; }  // 1 when it is no array

  // Of single values. Writers differ in the integer width, so any that holds the value will do;
  // empty for another kind. Booleans are no integers.
  std::optional<std::int64_t> as_int64() const { return single() ? int64_at(0) : std::nullopt; }
  std::optional<double> as_double() const { return single() ? double_at(0) : std::nullopt; }
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;
  // Element i < size() of an array, or 0 of a single value.
  std::optional<std::int64_t> int64_at(std::uint64_t i) const;
  std::optional<double> double_at(std::uint64_t i) const;
  // All elements of an array of strings; empty for other values.
  std::vector<std::string_view> strings() const;
  // The elements as stored; strings with their lengths.
  std::span<const std::byte> bytes() const { return bytes_; }
  // For people: the value, or "[3 x u32] 1, 2, …".
  std::string text() const;

 private:
  bool single() const { return !is_array_; }
  std::string element_text(std::uint64_t i) const;

  GgufKind kind_ = GgufKind::u8;
  bool is_array_ = false;
  std::uint64_t count_ = 1;
  std::uint64_t length_bytes_ = 8;    // of the strings' lengths
  std::span<const std::byte> bytes_;  // elements; of strings with their lengths
};

class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  // Reads `count` pairs. Keys: not empty, at most 65535 bytes, UTF-8, no duplicates.
  // Errors: corrupt, rules kv-count, kv-key, kv-twice and those of GgufValue::read.
  static Result<GgufMetadata> read(GgufCursor& cursor, std::uint64_t count);

  // Sorted by key.
  std::span<const Entry> entries() const { return entries_; }
  // nullptr when absent.
  const GgufValue* find(std::string_view key) const;
  // find("<general.architecture>.key"), as in "qwen3moe.expert_count".
  const GgufValue* find_of_architecture(std::string_view key) const;
  std::optional<std::string_view> architecture() const;

  // The file that holds the values stays open as long as this object.
  void keep(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

 private:
  std::vector<Entry> entries_;
  std::shared_ptr<const void> owner_;
};

}  // namespace fewbit
