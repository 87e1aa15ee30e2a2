// SPDX-License-Identifier: Apache-2.0
// tokenizer.json as a file, and its smaller components.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// Errors: not_found, io, corrupt, limit.
Result<Json> read_tokenizer_file(const std::filesystem::path& path);

enum class Normalizer { none, nfc };
// Error unsupported names any other.
Result<Normalizer> read_normalizer(const Json* node, const std::string& where);
// text: valid UTF-8.
std::string normalize(Normalizer normalizer, std::string_view text);

// ByteLevel (which only moves offsets), or nothing. Error unsupported names any other.
Result<void> check_post_processor(const Json* node, const std::string& where);
// ByteLevel. Error unsupported names any other.
Result<void> check_decoder(const Json* node, const std::string& where);

}  // namespace fewbit
