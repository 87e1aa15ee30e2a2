// SPDX-License-Identifier: Apache-2.0
// The command line of a benchmark program, looked at before anything is written or measured.
#pragma once

#include <algorithm>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace fewbit::bench {

struct Usage {
  const char* text;                                 // without "usage: "
  std::initializer_list<std::string_view> options;  // each is followed by a value
  int least_words = 0;                              // words that are no options
  int most_words = 0;
};

// The exit status when the program ends here: 0 after --help (the usage goes to stdout), 2 after
// a command line that it does not understand (why, and the usage, to stderr).
inline std::optional<int> ends_here(int argc, char** argv, const Usage& usage) {
  const auto wrong = [&](const std::string& why) {
    std::fprintf(stderr, "error: %s\nusage: %s\n", why.c_str(), usage.text);
    return 2;
  };
  int words = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      std::printf("usage: %s\n", usage.text);
      return 0;
    }
    if (!word.starts_with('-')) {
      ++words;
    } else if (std::ranges::find(usage.options, word) == usage.options.end()) {
      return wrong("unknown option " + word);
    } else if (++i == argc) {
      return wrong("no value for " + word);
    }
  }
  if (words >= usage.least_words && words <= usage.most_words) return std::nullopt;
  return wrong(std::to_string(words) + " words that are no options, expected " +
               std::to_string(usage.least_words) + " to " + std::to_string(usage.most_words));
}

}  // namespace fewbit::bench
