// SPDX-License-Identifier: Apache-2.0
// A strict JSON value: what config files, headers and reports are read from and written as.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fewbit/result.hpp"

namespace fewbit {

// Limits of the parser, checked before anything is stored.
struct JsonLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
  int max_depth = 64;
  std::size_t max_values = std::size_t{1} << 22;  // a value takes 48 bytes, its text may be 2
};

// Objects keep the order of the file. Numbers keep their kind: integers exactly (64 bits, signed or
// unsigned), others as double with their original text, so that dump() gives them back unchanged. A
// double that is not finite has no JSON form and becomes null, unless it was read: see dump().
class Json {
 public:
  struct Number {
    double value = 0;
    std::string text;
  };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;                                             // null
  Json(std::nullptr_t) {}                                       // NOLINT(*-explicit-*)
  Json(bool value) : value_(value) {}                           // NOLINT(*-explicit-*)
  Json(int value) : value_(std::int64_t{value}) {}              // NOLINT(*-explicit-*)
  Json(std::int64_t value) : value_(value) {}                   // NOLINT(*-explicit-*)
  Json(std::uint64_t value) : value_(value) {}                  // NOLINT(*-explicit-*)
  Json(double value);                                           // NOLINT(*-explicit-*)
  Json(Number value) : value_(std::move(value)) {}              // NOLINT(*-explicit-*)
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT(*-explicit-*)
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT(*-explicit-*)
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT(*-explicit-*)
  Json(Array value) : value_(std::move(value)) {}               // NOLINT(*-explicit-*)
  Json(Object value) : value_(std::move(value)) {}              // NOLINT(*-explicit-*)

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_number() const;
  bool is_integer() const;
  // "object", "string" … for messages.
  const char* kind() const;

  // Empty / nullptr when the value is of another kind (or doesn't fit).
  std::optional<bool> as_bool() const;
  std::optional<std::int64_t> as_int64() const;
  std::optional<std::uint64_t> as_uint64() const;
  std::optional<double> as_double() const;  // any finite number
  const std::string* as_string() const;
  const Array* as_array() const;
  const Object* as_object() const;
  // As in the file; empty when this is no number.
  std::string number_text() const;

  // Member of an object; nullptr when absent or when this is no object. Linear in the members.
  const Json* find(std::string_view key) const;
  // The member of an object as text; empty when it is none.
  std::string string_at(std::string_view key) const;
  // Sets or appends a member; turns null into an object.
  void set(std::string_view key, Json value);
  void push_back(Json value);  // turns null into an array
  // Like set(), for a key known to be new: constant time.
  void append_member(std::string key, Json value);

  // indent < 0: one line without spaces. Valid UTF-8 is kept, control characters are escaped, other
  // bytes become U+FFFD. Infinity is written as 1e400, which RFC 8259 allows and Python reads as
  // Infinity; NaN as null.
  std::string dump(int indent = -1) const;

  // Strict RFC 8259: duplicate keys, invalid UTF-8, comments, trailing text, NaN, depth, size and
  // number of values over the limits are errors (corrupt / limit) with the byte position, counted
  // to the end of the offending token. No recursion on depth.
  static Result<Json> parse(std::string_view text, const std::string& where,
                            const JsonLimits& limits = {});

  // As parse(), and numbers as Python's json module has them: Infinity, -Infinity, NaN, and 1e400
  // for Infinity. as_double() gives none of them.
  static Result<Json> parse_python(std::string_view text, const std::string& where,
                                   const JsonLimits& limits = {});

  // As parse() for an object whose members are handed over one by one and not kept: memory is that
  // of one member and all keys. max_values counts for each member. The first error of take() is the
  // result when the text is otherwise right. Returns the root: an empty object, or what else stands
  // there.
  using TakeMember = std::function<Result<void>(Member member)>;
  static Result<Json> parse_members(std::string_view text, const std::string& where,
                                    const JsonLimits& limits, const TakeMember& take);

 private:
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, Number, std::string, Array,
               Object>
      value_;
};

}  // namespace fewbit
