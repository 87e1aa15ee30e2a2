// SPDX-License-Identifier: Apache-2.0
// MLX's block "quantization": {"group_size", "bits", "mode"}, and beside these keys names of
// modules with an object of their own, true (as all) or false (not quantized). mlx-lm writes a copy
// as "quantization_config".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "scheme/declared.hpp"

namespace fewbit {

// Of one module, with the defaults of its mode. Empty: the config has a value that is none.
struct MlxSettings {
  std::string mode = "affine";  // as it is written, with its quotes where it is no mode
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;
  std::string where;
};

// Of a mode without a choice, or of affine where nothing is stated.
struct MlxMode {
  std::string_view name;
  std::int64_t bits;
  std::int64_t group_size;
};
// nullptr: no mode of MLX.
const MlxMode* find_mlx_mode(std::string_view name);

class MlxConfig {
 public:
  // Of the first declaration that is MLX's; empty when there is none.
  static std::optional<MlxConfig> read(const Declared& declared);

  // Of a module without an entry, or with true or false for one, what holds for all.
  MlxSettings of(const std::string& module) const;
  // By name; borrowed from the file.
  const std::unordered_map<std::string_view, const Json*>& entries() const { return entries_; }
  const std::string& where() const { return where_; }

 private:
  const Json* block_ = nullptr;
  std::string where_;
  std::unordered_map<std::string_view, const Json*> entries_;
};

}  // namespace fewbit
