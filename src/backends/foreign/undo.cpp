// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/undo.hpp"

namespace fewbit::foreign {

Result<std::span<const std::byte>> share_to_undo(const MoePlan& plan, ConstExpertSpans from,
                                                 std::string_view name, std::int64_t bytes) {
  const std::int64_t index = plan.index(name);
  const std::int64_t found = index < 0 ? 0 : std::ssize(from[static_cast<std::size_t>(index)]);
  if (index >= 0 && found == bytes) return from[static_cast<std::size_t>(index)];
  return Error{ErrorCode::inconsistent,
               fmt::format("{} of {} bytes, the layout has {}", name, found, bytes), ""};
}

Error element_differs(std::string_view name, Element at, std::uint64_t has, std::uint64_t want) {
  return {ErrorCode::inconsistent,
          fmt::format("{} unpacked differs from the source in row {}, group {}: {:#x}, expected "
                      "{:#x}",
                      name, at.n, at.k, has, want),
          ""};
}

Result<void> compare_rows(std::string_view name, std::span<const std::byte> undone,
                          std::span<const std::byte> rows) {
  const auto at = std::ranges::mismatch(undone, rows);
  if (at.in1 == undone.end() && at.in2 == rows.end()) return {};
  if (undone.size() != rows.size()) {
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} holds {} bytes, its source {}", name, undone.size(), rows.size()),
                 ""};
  }
  return Error{
      ErrorCode::inconsistent,
      fmt::format("{} unpacked differs from the source at byte {} of {}: {:#04x}, expected "
                  "{:#04x}",
                  name, at.in1 - undone.begin(), undone.size(), std::to_integer<unsigned>(*at.in1),
                  std::to_integer<unsigned>(*at.in2)),
      ""};
}

}  // namespace fewbit::foreign
