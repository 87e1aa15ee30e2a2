// SPDX-License-Identifier: Apache-2.0
// Any bytes as tokenizer.json; what is accepted must encode, and decode to what it was.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "checkpoint/scratch_folder.hpp"
#include "fewbit/model.hpp"

namespace {

constexpr std::string_view text =
    "It's 12 o'clock,\n\n \u00c5ngstr\u00f6m  e\u0301 <s> \U0001F600\t(end) ";

void check_tokenizer(const fewbit::Tokenizer& tokenizer) {
  const auto ids = tokenizer.encode(text);
  if (!ids) return;
  for (const std::int32_t id : *ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  }
  (void)tokenizer.decode(*ids, true);
  std::vector<std::int32_t> outside = {-1};
  if (tokenizer.decode(outside)) std::abort();
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fewbit::ScratchFolder folder;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = fewbit::Tokenizer::open(folder.write("tokenizer.json", input));
  if (tokenizer) check_tokenizer(*tokenizer);
  return 0;
}
