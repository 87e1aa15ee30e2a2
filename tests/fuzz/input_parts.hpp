// SPDX-License-Identifier: Apache-2.0
// Pieces of text that describe files of a checkpoint to a fuzz target.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/text_file.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

constexpr std::uint64_t max_data_bytes = 1U << 16U;  // of all tensors together
constexpr std::size_t max_files = 9;                 // of one model

inline std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

// "2,8,64"; empty when it is no shape.
inline std::optional<Shape> parse_dims(std::string_view dims) {
  Shape shape;
  while (!dims.empty()) {
    const auto dim = parse_number<std::int64_t>(take_until(dims, ','));
    if (!dim || *dim < 0) return std::nullopt;
    shape.push_back(*dim);
  }
  return shape;
}

inline std::string filled(std::uint64_t size, std::string_view pattern) {
  std::string data(size, '\x38');
  for (std::size_t i = 0; i < data.size() && !pattern.empty(); ++i) {
    data[i] = pattern[i % pattern.size()];
  }
  return data;
}

// "model.safetensors", or "model-00002-of-00003.safetensors".
inline std::string model_file(std::size_t i, std::size_t count, std::string_view extension) {
  const std::string number =
      count == 1 ? "" : "-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(count);
  return "model" + number + std::string(extension);
}

}  // namespace fewbit
