// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>

#include "checkpoint/file_kind.hpp"
#include "checkpoint/foreign_content.hpp"
#include "checkpoint/system_error.hpp"
#include "core/quote.hpp"
#include "model/unicode_nfc.hpp"

namespace fewbit {
namespace {

constexpr std::uintmax_t max_file_bytes = std::uintmax_t{256} << 20;

// The only component of a Sequence of one, which is how some files write a single component.
const Json& unwrap(const Json& node, std::string_view list) {
  const Json* type = node.find("type");
  const bool sequence =
      type != nullptr && type->as_string() != nullptr && *type->as_string() == "Sequence";
  const Json* entries = sequence ? node.find(list) : nullptr;
  const Json::Array* array = entries == nullptr ? nullptr : entries->as_array();
  return array != nullptr && array->size() == 1 ? array->front() : node;
}

Result<void> expect_type(const Json& node, std::string_view component, std::string_view expected,
                         const std::string& where) {
  const Json* type = node.find("type");
  const std::string* name = type == nullptr ? nullptr : type->as_string();
  if (name != nullptr && *name == expected) return {};
  return Error{
      ErrorCode::unsupported,
      fmt::format("{} {}, expected {}", component,
                  name != nullptr ? quote(*name) : std::string("without a type"), expected),
      where};
}

}  // namespace

Result<Json> read_tokenizer_file(const std::filesystem::path& path) {
  const std::string where = path.string();
  FEWBIT_TRY(expect_regular_file(path));
  std::error_code failure;
  const std::uintmax_t bytes = std::filesystem::file_size(path, failure);
  if (failure) {
    const bool missing = failure == std::errc::no_such_file_or_directory;
    return Error{missing ? ErrorCode::not_found : ErrorCode::io,
                 missing ? "file does not exist" : failure.message(), where};
  }
  if (bytes > max_file_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("file of {} bytes, at most {}", bytes, max_file_bytes), where};
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return system_error("open", errno, path);
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    return system_error(fmt::format("read {} bytes", bytes), errno, path);
  }
  FEWBIT_TRY(expect_json(std::as_bytes(std::span(text)), where));
  FEWBIT_TRY(Json root, Json::parse(text, where));
  if (!root.is_object()) {
    return Error{ErrorCode::corrupt, fmt::format("found {}, expected an object", root.kind()),
                 where};
  }
  return root;
}

Result<Normalizer> read_normalizer(const Json* node, const std::string& where) {
  if (node == nullptr || node->is_null()) return Normalizer::none;
  const Json& single = unwrap(*node, "normalizers");
  FEWBIT_TRY(expect_type(single, "normalizer", "NFC", where));
  return Normalizer::nfc;
}

std::string normalize(Normalizer normalizer, std::string_view text) {
  return normalizer == Normalizer::nfc ? normalize_nfc(text) : std::string(text);
}

Result<void> check_post_processor(const Json* node, const std::string& where) {
  if (node == nullptr || node->is_null()) return {};
  return expect_type(unwrap(*node, "processors"), "post_processor", "ByteLevel", where);
}

Result<void> check_decoder(const Json* node, const std::string& where) {
  if (node == nullptr || node->is_null()) {
    return Error{ErrorCode::unsupported, "no decoder, expected ByteLevel", where};
  }
  return expect_type(unwrap(*node, "decoders"), "decoder", "ByteLevel", where);
}

}  // namespace fewbit
