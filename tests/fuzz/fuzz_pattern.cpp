// SPDX-License-Identifier: Apache-2.0
// A pattern of a tokenizer file, a NUL byte and the text it is searched in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/utf8.hpp"
#include "model/tokenizer_pattern.hpp"

namespace {

void check_search(const fewbit::TokenizerPattern& pattern, std::string_view text) {
  fewbit::TokenizerPattern::Search search(pattern, text);
  std::size_t end = 0;
  for (std::size_t matches = 0; matches <= 2 * text.size() + 2; ++matches) {
    const auto match = search.next();
    if (!match || !*match) return;
    if ((*match)->begin < end || (*match)->end < (*match)->begin || (*match)->end > text.size()) {
      std::abort();
    }
    end = (*match)->end;
  }
  std::abort();  // more matches than places
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view pattern = input.substr(0, input.find('\0'));
  const std::string_view text = input.substr(std::min(size, pattern.size() + 1));
  if (fewbit::utf8_valid_prefix(text) < text.size()) return 0;
  for (const auto kind :
       {fewbit::TokenizerPattern::Kind::regex, fewbit::TokenizerPattern::Kind::literal}) {
    const auto compiled = fewbit::TokenizerPattern::compile(pattern, kind, "fuzz");
    if (compiled) check_search(*compiled, text);
  }
  return 0;
}
