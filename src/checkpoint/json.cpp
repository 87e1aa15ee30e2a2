// SPDX-License-Identifier: Apache-2.0
// Json::parse over the SAX interface of nlohmann-json, whose own document type would hide duplicate
// keys. Its parser keeps its own stack, so input depth costs no recursion.
#include "checkpoint/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/json_python.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

// Reads the text and tells, through `consumed`, how far the parser has come: the SAX events carry
// no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *consumed_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  const char** consumed_;
};

// The parser's message without the text it last read, which can be as long as the file.
std::string short_reason(std::string_view text) {
  const std::size_t start = text.find("syntax error");
  if (start == std::string_view::npos) return "number out of the range of a double";
  text.remove_prefix(start);
  const std::size_t last_read = text.find("; last read");
  const std::size_t expected = text.rfind("; expected");
  std::string reason(text.substr(0, std::min(last_read, expected)));
  if (expected != std::string_view::npos) reason += text.substr(expected, 80);
  return reason;
}

class Builder {
 public:
  Builder(const char* begin, const char* const* consumed, std::string where,
          const JsonLimits& limits, const Json::TakeMember* take_member,
          const PythonNumbers* python)
      : begin_(begin),
        consumed_(consumed),
        where_(std::move(where)),
        limits_(limits),
        take_member_(take_member),
        python_(python) {}

  // Events of the parser; false stops it, with error_ set.
  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(std::int64_t value) { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) { return add(Json(value)); }
  bool number_float(double value, const std::string& text) {
    Json::Number number{value, text};
    // The parser writes the decimal point of the C locale in force.
    for (char& c : number.text) {
      if (std::string_view("0123456789+-eE").find(c) == std::string_view::npos) c = '.';
    }
    const char* end = number.text.data() + number.text.size();
    std::from_chars(number.text.data(), end, number.value);
    return add(Json(std::move(number)));
  }
  bool string(std::string& value) {
    if (auto number = stand_in()) return add(Json(*std::move(number)));
    return add(Json(std::move(value)));
  }
  bool binary(const std::vector<std::uint8_t>& /*value*/) { return false; }  // never in text
  bool start_object(std::size_t /*size*/) { return open(Json(Json::Object{})); }
  bool start_array(std::size_t /*size*/) { return open(Json(Json::Array{})); }
  bool end_array() { return close(); }
  bool end_object() { return check_duplicates() && close(); }
  bool key(std::string& name) {
    if (const auto number = stand_in()) {
      return fail(ErrorCode::corrupt, position(), number->text + " as a key");
    }
    Frame& frame = frames_.back();
    frame.key = std::move(name);
    key_ends_.push_back(position());
    return true;
  }
  bool parse_error(std::size_t at, const std::string& /*token*/,
                   const nlohmann::detail::exception& reason) {
    return fail(ErrorCode::corrupt, at, short_reason(reason.what()));
  }

  Result<Json> take(bool complete) {
    if (error_) return *std::move(error_);
    if (!complete) return Error{ErrorCode::corrupt, "the text is no JSON value", where_};
    if (member_error_) return *std::move(member_error_);
    return std::move(root_);
  }

 private:
  // An array or object that is not closed yet. Its key ends are the last of key_ends_.
  struct Frame {
    Json value;
    std::string key;  // of the member to come
    std::size_t first_key_end = 0;
  };

  std::size_t position() const { return static_cast<std::size_t>(*consumed_ - begin_); }

  // The number that the string just read stands for.
  std::optional<Json::Number> stand_in() const {
    return python_ != nullptr ? python_->ending_at(position()) : std::nullopt;
  }

  bool fail(ErrorCode code, std::size_t at, const std::string& what) {
    error_ = Error{code, fmt::format("byte {}: {}", at, what), where_};
    return false;
  }

  bool count() {
    if (++values_ <= limits_.max_values) return true;
    return fail(ErrorCode::limit, position(),
                fmt::format("more than {} values, the limit", limits_.max_values));
  }

  bool add(Json value) { return count() && attach(std::move(value)); }

  bool attach(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
    } else if (Frame& frame = frames_.back(); frame.value.is_array()) {
      frame.value.push_back(std::move(value));
    } else if (hands_over()) {
      return hand_over({frame.key, std::move(value)});
    } else {
      frame.value.append_member(std::move(frame.key), std::move(value));
    }
    return true;
  }

  bool hands_over() const { return take_member_ != nullptr && frames_.size() == 1; }

  // Past a limit nothing more is read; other errors of a member wait for those of the text.
  bool hand_over(Json::Member member) {
    values_ = 0;
    handed_over_.push_back(std::move(frames_.back().key));
    if (member_error_) return true;
    const auto taken = (*take_member_)(std::move(member));
    if (taken) return true;
    (taken.error().code == ErrorCode::limit ? error_ : member_error_) = taken.error();
    return !error_;
  }

  const std::string& key_at(std::size_t i) const {
    return hands_over() ? handed_over_[i] : (*frames_.back().value.as_object())[i].first;
  }

  bool open(Json empty) {
    if (frames_.size() >= static_cast<std::size_t>(std::max(limits_.max_depth, 0))) {
      return fail(ErrorCode::limit, position(),
                  fmt::format("nested deeper than {} levels, the limit", limits_.max_depth));
    }
    const bool root = take_member_ != nullptr && frames_.empty();
    if (!root && !count()) return false;
    frames_.push_back(Frame{std::move(empty), {}, key_ends_.size()});
    return true;
  }

  bool close() {
    key_ends_.resize(frames_.back().first_key_end);
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return attach(std::move(value));
  }

  // Sorting instead of hashing: no input makes it slow.
  bool check_duplicates() {
    const Json::Object& object = *frames_.back().value.as_object();
    order_.resize(hands_over() ? handed_over_.size() : object.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      const int compared = key_at(a).compare(key_at(b));
      return compared != 0 ? compared < 0 : a < b;
    });
    const auto twin =
        std::adjacent_find(order_.begin(), order_.end(),
                           [&](std::size_t a, std::size_t b) { return key_at(a) == key_at(b); });
    if (twin == order_.end()) return true;
    const std::size_t* ends = key_ends_.data() + frames_.back().first_key_end;
    return fail(
        ErrorCode::corrupt, ends[*(twin + 1)],
        fmt::format("duplicate key {}, first at byte {}", quote(key_at(*twin)), ends[*twin]));
  }

  const char* begin_;
  const char* const* consumed_;
  std::string where_;
  JsonLimits limits_;
  const Json::TakeMember* take_member_;
  const PythonNumbers* python_;
  std::optional<Error> error_;
  std::optional<Error> member_error_;
  std::vector<std::string> handed_over_;  // keys of members of the root
  Json root_;
  std::vector<Frame> frames_;
  std::vector<std::size_t> key_ends_;
  std::vector<std::size_t> order_;
  std::size_t values_ = 0;
};

// What the parser below would let pass.
Result<void> check_text(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("{} bytes of JSON, the limit is {}", text.size(), limits.max_bytes),
                 where};
  }
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    return Error{ErrorCode::corrupt, fmt::format("byte {}: a zero byte in JSON text", at), where};
  }
  if (text.starts_with("\xef\xbb\xbf")) {
    return Error{ErrorCode::corrupt, "byte 0: a byte order mark before JSON text", where};
  }
  return {};
}

Result<Json> parse_text(std::string_view text, const std::string& where, const JsonLimits& limits,
                        const Json::TakeMember* take_member, const PythonNumbers* python) {
  const char* consumed = text.data();
  Builder builder(text.data(), &consumed, where, limits, take_member, python);
  const bool complete =
      nlohmann::json::sax_parse(CountingIterator(text.data(), &consumed),
                                CountingIterator(text.data() + text.size(), &consumed), &builder);
  return builder.take(complete);
}

}  // namespace

Result<Json> Json::parse(std::string_view text, const std::string& where,
                         const JsonLimits& limits) {
  FEWBIT_TRY(check_text(text, where, limits));
  return parse_text(text, where, limits, nullptr, nullptr);
}

Result<Json> Json::parse_python(std::string_view text, const std::string& where,
                                const JsonLimits& limits) {
  FEWBIT_TRY(check_text(text, where, limits));
  const PythonNumbers numbers(text);
  return parse_text(numbers.strict_text(), where, limits, nullptr, &numbers);
}

Result<Json> Json::parse_members(std::string_view text, const std::string& where,
                                 const JsonLimits& limits, const TakeMember& take) {
  FEWBIT_TRY(check_text(text, where, limits));
  return parse_text(text, where, limits, &take, nullptr);
}

}  // namespace fewbit
