// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error. The library never throws, prints or exits on bad input.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace fewbit {

enum class ErrorCode {
  invalid_argument,  // the caller's arguments do not fit together
  not_found,         // a file, tensor or name does not exist
  io,                // the operating system refused to read or write
  corrupt,           // a file contradicts its own format
  inconsistent,      // parts of a checkpoint contradict each other
  unsupported,       // understood, but not possible here; the text says what is needed
  limit,             // a size is beyond a stated limit or overflows
  cancelled,         // the caller's progress callback asked to stop
};

// "corrupt", "io", ...
const char* error_code_name(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string what;   // found this, expected that, with numbers
  std::string where;  // file, tensor or rule

  // "where: what"
  std::string message() const { return where.empty() ? what : where + ": " + what; }
};

// Value or error, with the names of std::expected (which g++ 12 and nvcc 13.0 lack).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(*-explicit-*)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(*-explicit-*)

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & { return checked(*this); }
  const T& value() const& { return checked(*this); }
  T&& value() && { return std::move(checked(*this)); }
  T& operator*() & { return checked(*this); }
  const T& operator*() const& { return checked(*this); }
  T&& operator*() && { return std::move(checked(*this)); }
  T* operator->() { return &checked(*this); }
  const T* operator->() const { return &checked(*this); }
  const Error& error() const {
    assert(!has_value());
    return *std::get_if<1>(&state_);
  }

 private:
  template <class Self>
  static auto& checked(Self& self) {
    assert(self.has_value());
    return *std::get_if<0>(&self.state_);
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(*-explicit-*)

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const { assert(has_value()); }
  const Error& error() const {
    assert(error_.has_value());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace fewbit

#define FEWBIT_CONCAT_(a, b) a##b
#define FEWBIT_CONCAT(a, b) FEWBIT_CONCAT_(a, b)
#define FEWBIT_TRY_VALUE_(tmp, decl, ...) \
  auto tmp = (__VA_ARGS__);               \
  if (!tmp) return tmp.error();           \
  decl = *std::move(tmp)
#define FEWBIT_TRY_VOID_(tmp, ...)                          \
  do {                                                      \
    if (auto tmp = (__VA_ARGS__); !tmp) return tmp.error(); \
  } while (false)
#define FEWBIT_TRY_PICK_(a, b, name, ...) name
// FEWBIT_TRY(f()) for Result<void>; FEWBIT_TRY(auto x, f()) to take the value.
// Returns the error to the caller of the enclosing function.
#define FEWBIT_TRY(...)                                                      \
  FEWBIT_TRY_PICK_(__VA_ARGS__, FEWBIT_TRY_VALUE_, FEWBIT_TRY_VOID_, unused) \
  (FEWBIT_CONCAT(fewbit_result_, __LINE__), __VA_ARGS__)
