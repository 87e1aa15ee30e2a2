// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/measure.hpp"
#include "core/ascii.hpp"
#include "core/nearest.hpp"
#include "core/quote.hpp"

namespace fewbit::bench {
namespace {

// The name with its kind of weights, which the first of a model goes without.
std::string whole_name(const LayerShape& shape) {
  return shape.name.find('/') == std::string::npos ? shape.name + "/" + shape.scheme : shape.name;
}

}  // namespace

std::string names_of(const std::vector<LayerShape>& shapes) {
  std::string text;
  for (const LayerShape& shape : shapes) text += (text.empty() ? "" : ", ") + shape.name;
  return text;
}

Result<LayerShape> find_shape(const std::vector<LayerShape>& shapes, std::string_view name) {
  const std::string asked = lower_ascii(name);
  std::vector<std::string> known;
  for (const LayerShape& shape : shapes) {
    const std::string whole = whole_name(shape);
    if (lower_ascii(shape.name) == asked || lower_ascii(whole) == asked) return shape;
    known.push_back(shape.name);
    if (whole != shape.name) known.push_back(whole);
  }
  const std::string meant = did_you_mean(name, known);
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("no shape {}{}", quote(name),
                  meant.empty() ? ", known: " + names_of(shapes) : meant + " (--list: all)"),
      "SHAPE"};
}

}  // namespace fewbit::bench
