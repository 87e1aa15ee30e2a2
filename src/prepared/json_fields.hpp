// SPDX-License-Identifier: Apache-2.0
// The fields of a JSON object, each checked, with its path in every error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

class JsonFields {
 public:
  // path: "layers[3].problem"; empty for the file itself.
  JsonFields(const Json& json, std::string path, std::string where)
      : json_(json), path_(std::move(path)), where_(std::move(where)) {}

  Result<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> text(std::string_view key) const;
  // A name of a file below the folder.
  Result<std::string> file_name(std::string_view key) const;
  Result<JsonFields> object(std::string_view key) const;
  Result<std::vector<JsonFields>> objects(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t low,
                                             std::int64_t high) const;
  bool is_null(std::string_view key) const;
  // Error corrupt: "path.key: what".
  Error bad(std::string_view key, std::string_view what) const;
  const std::string& where() const { return where_; }

 private:
  std::string at(std::string_view key) const;
  Error expected(std::string_view key, std::string_view what) const;

  const Json& json_;
  std::string path_;
  std::string where_;
};

}  // namespace fewbit
