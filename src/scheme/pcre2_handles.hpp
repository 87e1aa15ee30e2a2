// SPDX-License-Identifier: Apache-2.0
// PCRE2's objects as C++ owns them; for the files that compile patterns.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace fewbit {

struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
using Pcre2Code = std::unique_ptr<pcre2_code, FreePcre2>;
using Pcre2MatchData = std::unique_ptr<pcre2_match_data, FreePcre2>;
using Pcre2MatchContext = std::unique_ptr<pcre2_match_context, FreePcre2>;
using Pcre2CompileContext = std::unique_ptr<pcre2_compile_context, FreePcre2>;

// PCRE2 takes no null pointer for an empty text.
inline const PCRE2_UCHAR* pcre2_units(std::string_view text) {
  static constexpr PCRE2_UCHAR nothing = 0;
  return text.empty() ? &nothing : reinterpret_cast<const PCRE2_UCHAR*>(text.data());
}

inline std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace fewbit
