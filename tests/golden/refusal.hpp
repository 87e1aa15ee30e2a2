// SPDX-License-Identifier: Apache-2.0
// Rows of tables that say what is refused and why: {"result": "ok" or "error", "error": type,
// "message": what the source says}. Ours says it in other words, so each cause is named in both.
#pragma once

#include <span>

#include "golden/case.hpp"

namespace fewbit::golden {

struct Cause {
  const char* theirs;      // a part of the table's message
  const char* ours;        // a part of our message
  const char* words = "";  // another one
  bool given = true;       // ours has all names and numbers behind the "got" of theirs too
};

// Error inconsistent: what the row wants refused is not, or for another cause than it names; or the
// other way about.
Result<void> check_row(const GoldenCase& c, const Json& row, const Result<void>& result,
                       std::span<const Cause> causes);

}  // namespace fewbit::golden
