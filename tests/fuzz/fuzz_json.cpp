// SPDX-License-Identifier: Apache-2.0
// Any bytes: an error or a value whose text reads back as itself; read as Python's too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/json.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = fewbit::Json::parse(text, "fuzz");
  const auto python = fewbit::Json::parse_python(text, "fuzz");
  if (python) {
    const std::string once = python->dump();
    const auto again = fewbit::Json::parse_python(once, "fuzz");
    if (!again || again->dump() != once) std::abort();
  }
  if (!json) return 0;
  if (!python || python->dump() != json->dump()) std::abort();
  const std::string once = json->dump();
  for (const int indent : {-1, 2}) {
    const auto again = fewbit::Json::parse(json->dump(indent), "fuzz");
    if (!again || again->dump() != once) std::abort();
  }
  return 0;
}
