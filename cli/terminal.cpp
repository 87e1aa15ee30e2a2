// SPDX-License-Identifier: Apache-2.0
#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace fewbit::cli {
namespace {

constexpr int narrowest = 20;

// Characters, not bytes; wide ones count as one.
bool wider_than(std::string_view text, std::size_t columns) {
  std::size_t count = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U && ++count > columns) return true;
  }
  return false;
}

// Where the last column of text begins that leaves half of the line to it.
std::size_t hanging_indent(std::string_view line, std::size_t columns) {
  const std::size_t first = line.find_first_not_of(' ');
  if (first == std::string_view::npos) return 0;
  std::size_t indent = std::min(first + 2, columns / 2);
  for (std::size_t at = line.find("  ", first); at != std::string_view::npos && at < columns / 2;
       at = line.find("  ", at)) {
    at = std::min(line.find_first_not_of(' ', at), line.size());
    if (at <= columns / 2) indent = at;
  }
  return indent;
}

void add_wrapped(std::string_view line, std::size_t columns, std::string& out) {
  const std::size_t indent = hanging_indent(line, columns);
  std::size_t used = 0;
  while (wider_than(line, columns - used)) {
    // The last blank that fits, else the first one behind.
    std::size_t end = std::string_view::npos;
    const std::size_t text = line.find_first_not_of(' ');
    for (std::size_t at = line.find(' ', text); at != std::string_view::npos;
         at = line.find(' ', at + 1)) {
      if (end != std::string_view::npos && wider_than(line.substr(0, at), columns - used)) break;
      end = at;
    }
    if (end == std::string_view::npos) break;
    std::string_view head = line.substr(0, end);
    head = head.substr(0, head.find_last_not_of(' ') + 1);
    out.append(head).append("\n").append(indent, ' ');
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
    used = indent;
  }
  out.append(line);
}

}  // namespace

static int columns_of(int descriptor) {
  if (isatty(descriptor) != 1) return 0;
  int columns = 0;
  if (const char* set = std::getenv("COLUMNS"); set != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    const std::string_view text = set;
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  winsize size{};
  if (columns <= 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns <= 0 ? 0 : std::max(columns, narrowest);
}

int output_columns() { return columns_of(STDOUT_FILENO); }
int error_columns() { return columns_of(STDERR_FILENO); }

std::string wrapped_page(std::string_view text, int columns) {
  if (columns <= 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    add_wrapped(text.substr(0, end), static_cast<std::size_t>(columns), out);
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace fewbit::cli
