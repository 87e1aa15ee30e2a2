// SPDX-License-Identifier: Apache-2.0
// Json as text. Recursion is as deep as the value; parse() bounds that for values from files.
#include <string>
#include <string_view>

#include "checkpoint/json.hpp"
#include "checkpoint/json_text.hpp"
#include "core/utf8.hpp"

namespace fewbit {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

void append_escaped(std::string& out, unsigned char byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += digits[byte >> 4];
      out += digits[byte & 15];
  }
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  std::size_t at = 0;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = utf8_sequence_length(text, at);
    if (length == 0) {
      out += replacement;
    } else if (byte < 0x20 || byte == '"' || byte == '\\') {
      append_escaped(out, byte);
    } else {
      out += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  out += '"';
}

// Also for what Python's module reads only.
std::string strict_number(const Json& value) {
  std::string text = value.number_text();
  if (text == "NaN") return "null";
  if (text == "Infinity") return "1e400";
  return text == "-Infinity" ? "-1e400" : text;
}

class Dumper {
 public:
  enum class Numbers { strict, as_read };
  Dumper(std::string& out, int indent, Numbers numbers = Numbers::strict)
      : out_(out), indent_(indent), numbers_(numbers) {}

  void append(const Json& value) {
    if (const auto* object = value.as_object()) {
      append_list('{', '}', *object, [&](const Json::Member& member) {
        append_string(out_, member.first);
        out_ += indent_ < 0 ? ":" : ": ";
        append(member.second);
      });
    } else if (const auto* array = value.as_array()) {
      append_list('[', ']', *array, [&](const Json& element) { append(element); });
    } else if (const auto* text = value.as_string()) {
      append_string(out_, *text);
    } else if (const auto flag = value.as_bool()) {
      out_ += *flag ? "true" : "false";
    } else {
      out_ += value.is_number() ? number(value) : "null";
    }
  }

 private:
  std::string number(const Json& value) const {
    return numbers_ == Numbers::strict ? strict_number(value) : value.number_text();
  }

  template <class List, class Append>
  void append_list(char open, char close, const List& list, Append append_item) {
    out_ += open;
    ++depth_;
    bool first = true;
    for (const auto& item : list) {
      if (!first) out_ += ',';
      first = false;
      new_line();
      append_item(item);
    }
    --depth_;
    if (!list.empty()) new_line();
    out_ += close;
  }

  void new_line() {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_) * depth_, ' ');
  }

  std::string& out_;
  int indent_;
  Numbers numbers_;
  std::size_t depth_ = 0;
};

}  // namespace

std::string Json::dump(int indent) const {
  std::string out;
  Dumper(out, indent).append(*this);
  return out;
}

std::string json_text(const Json& value) {
  std::string out;
  Dumper(out, -1, Dumper::Numbers::as_read).append(value);
  return out;
}

std::string value_text(const Json& value) {
  constexpr std::size_t longest = 80;
  const std::string text = json_text(value);
  return text.size() > longest ? text.substr(0, longest) + "…" : text;
}

}  // namespace fewbit
