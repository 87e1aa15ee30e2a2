// SPDX-License-Identifier: Apache-2.0
#include "core/huge_pages.hpp"

#include <sys/mman.h>

#include <cstdint>

#include "core/text_file.hpp"

namespace fewbit {

void ask_for_huge_pages(std::span<std::byte> memory) {
#if defined(MADV_HUGEPAGE)
  constexpr std::uint64_t page_bytes = std::uint64_t{1} << 21;
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uint64_t skipped = (page_bytes - address % page_bytes) % page_bytes;
  if (memory.size() < skipped + page_bytes) return;
  const std::uint64_t whole = (memory.size() - skipped) / page_bytes * page_bytes;
  static_cast<void>(madvise(memory.data() + skipped, whole, MADV_HUGEPAGE));
#else
  static_cast<void>(memory);
#endif
}

std::string huge_page_setting() {
  return chosen_setting(read_kernel_file("/sys/kernel/mm/transparent_hugepage/enabled"));
}

std::string chosen_setting(std::string_view text) {
  const std::size_t begin = text.find('[');
  const std::size_t end = text.find(']', begin == std::string_view::npos ? text.size() : begin);
  if (end == std::string_view::npos) return {};
  return std::string(text.substr(begin + 1, end - begin - 1));
}

}  // namespace fewbit
