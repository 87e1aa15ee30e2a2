// SPDX-License-Identifier: Apache-2.0
// Compares computed outputs with a golden set, in f64, as the manifest's `compare` says.
#include <cmath>
#include <cstring>

#include "core/float_convert.hpp"
#include "golden/case.hpp"

namespace fewbit::golden {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double element(const TensorView& view, std::size_t i) {
  switch (view.dtype) {
    case DType::f64:
      return load<double>(view.bytes, i);
    case DType::f32:
      return static_cast<double>(load<float>(view.bytes, i));
    case DType::f16:
      return static_cast<double>(f16_to_f32(load<std::uint16_t>(view.bytes, i)));
    case DType::bf16:
      return static_cast<double>(bf16_to_f32(load<std::uint16_t>(view.bytes, i)));
    case DType::f8_e4m3:
      return static_cast<double>(f8_e4m3_to_f32(load<std::uint8_t>(view.bytes, i)));
    case DType::f8_e5m2:
      return static_cast<double>(f8_e5m2_to_f32(load<std::uint8_t>(view.bytes, i)));
    case DType::f8_e8m0:
      return static_cast<double>(f8_e8m0_to_f32(load<std::uint8_t>(view.bytes, i)));
    case DType::i64:
      return static_cast<double>(load<std::int64_t>(view.bytes, i));
    case DType::i32:
      return static_cast<double>(load<std::int32_t>(view.bytes, i));
    case DType::i16:
      return static_cast<double>(load<std::int16_t>(view.bytes, i));
    case DType::u16:
      return static_cast<double>(load<std::uint16_t>(view.bytes, i));
    case DType::i8:
      return static_cast<double>(load<std::int8_t>(view.bytes, i));
    case DType::u8:
    case DType::boolean:
      return static_cast<double>(load<std::uint8_t>(view.bytes, i));
    default:
      return std::nan("");
  }
}

std::size_t element_count(const TensorView& view) {
  return view.bytes.size() * 8 / static_cast<std::size_t>(dtype_bits(view.dtype));
}

std::string place(std::size_t i, const TensorView& got, const TensorView& want) {
  return "element " + std::to_string(i) + ": got " + std::to_string(element(got, i)) + ", want " +
         std::to_string(element(want, i));
}

Comparison summary(std::size_t bad, std::size_t total, const std::string& first) {
  if (bad == 0) return {true, ""};
  return {false, std::to_string(bad) + " of " + std::to_string(total) + " differ; " + first};
}

Comparison compare_exact(const TensorView& got, const TensorView& want, bool any_nan) {
  const auto width = static_cast<std::size_t>(dtype_bits(want.dtype) / 8);
  const std::size_t total = element_count(want);
  std::size_t bad = 0;
  std::string first;
  for (std::size_t i = 0; i < total; ++i) {
    if (std::memcmp(got.bytes.data() + i * width, want.bytes.data() + i * width, width) == 0) {
      continue;
    }
    if (any_nan && std::isnan(element(want, i)) && std::isnan(element(got, i))) continue;
    if (bad++ == 0) first = place(i, got, want);
  }
  return summary(bad, total, first);
}

bool is_close(double got, double want, double rtol, double atol) {
  if (std::isnan(want) || std::isinf(want))
    return (std::isnan(got) && std::isnan(want)) || got == want;
  return std::abs(got - want) <= atol + rtol * std::abs(want);
}

struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

Tolerance tolerance(const Json& compare) {
  const auto number = [&](const char* key) {
    const Json* value = compare.find(key);
    return value == nullptr ? 0.0 : value->as_double().value_or(0.0);
  };
  return {number("rtol"), number("atol")};
}

Comparison compare_close(const TensorView& got, const TensorView& want, const Tolerance& t) {
  const std::size_t total = element_count(want);
  std::size_t bad = 0;
  std::string first;
  for (std::size_t i = 0; i < total; ++i) {
    if (is_close(element(got, i), element(want, i), t.rtol, t.atol)) continue;
    if (bad++ == 0) first = place(i, got, want);
  }
  return summary(bad, total, first);
}

// Weights are paired with the expected ones by expert number, row by row.
Comparison compare_topk_weights(const GoldenCase& c, const TensorView& got, const TensorView& want,
                                const Json& compare, const Outputs& outputs) {
  const Json* ids_role = compare.find("ids");
  const std::string role =
      ids_role != nullptr && ids_role->as_string() != nullptr ? *ids_role->as_string() : "";
  const auto got_ids = outputs.find(role);
  const auto want_ids = c.outputs.find(role);
  if (got_ids == outputs.end() || want_ids == c.outputs.end() || want.shape.size() != 2) {
    return {false, "no ids '" + role + "' to pair the weights with"};
  }
  const auto columns = static_cast<std::size_t>(want.shape[1]);
  const std::size_t total = element_count(want);
  const Tolerance t = tolerance(compare);
  std::size_t bad = 0;
  std::string first;
  for (std::size_t i = 0; i < total; ++i) {
    const double id = element(want_ids->second.tensor.view, i);
    const std::size_t row = i / columns * columns;
    bool found = false;
    for (std::size_t j = row; j < row + columns && !found; ++j) {
      found = element(got_ids->second.view, j) == id &&
              is_close(element(got, j), element(want, i), t.rtol, t.atol);
    }
    if (!found && bad++ == 0) first = place(i, got, want);
  }
  return summary(bad, total, first);
}

Comparison compare_as(const GoldenCase& c, const std::string& mode, const TensorView& got,
                      const TensorView& want, const Json& compare, const Outputs& outputs) {
  if (mode == "exact") return compare_exact(got, want, false);
  if (mode == "exact_nan") return compare_exact(got, want, true);
  if (mode == "close") return compare_close(got, want, tolerance(compare));
  // fewbit orders experts by falling selection score, as the set does.
  if (mode == "topk_ids") return compare_close(got, want, {0, 0});
  if (mode == "topk_weights") return compare_topk_weights(c, got, want, compare, outputs);
  return {false, "compare mode '" + mode + "' is unknown"};
}

std::string mode_of(const Expected& expected) {
  const Json* mode = expected.compare == nullptr ? nullptr : expected.compare->find("mode");
  return mode != nullptr && mode->as_string() != nullptr ? *mode->as_string() : "";
}

Comparison compare_shapes(const TensorView& got, const TensorView& want) {
  if (dtype_bits(got.dtype) != dtype_bits(want.dtype) || got.shape != want.shape ||
      got.bytes.size() != want.bytes.size()) {
    return {false, "got " + std::string(dtype_name(got.dtype)) + " " + shape_text(got.shape) +
                       ", want " + std::string(dtype_name(want.dtype)) + " " +
                       shape_text(want.shape)};
  }
  return {true, ""};
}

// The expected tensor or any of its legitimate alternatives.
Comparison compare_alternatives(const GoldenCase& c, const std::string& role,
                                const TensorView& got) {
  for (const auto& [other, expected] : c.outputs) {
    if (mode_of(expected) != "alternative") continue;
    const Json* to = expected.compare->find("to");
    if (to == nullptr || to->as_string() == nullptr || *to->as_string() != role) continue;
    if (!compare_shapes(got, expected.tensor.view).passed) continue;
    if (compare_exact(got, expected.tensor.view, true).passed) return {true, ""};
  }
  return {false, ""};
}

}  // namespace

Comparison compare_output(const GoldenCase& golden_case, const std::string& role,
                          const Outputs& outputs) {
  const Expected& expected = golden_case.outputs.at(role);
  const std::string mode = mode_of(expected);
  if (mode == "info" || mode == "alternative") return {true, ""};
  const auto computed = outputs.find(role);
  if (computed == outputs.end()) return {false, "output was not computed"};
  const TensorView& got = computed->second.view;
  const TensorView& want = expected.tensor.view;
  if (Comparison shapes = compare_shapes(got, want); !shapes.passed) return shapes;
  Comparison result = compare_as(golden_case, mode, got, want, *expected.compare, outputs);
  if (!result.passed && compare_alternatives(golden_case, role, got).passed) return {true, ""};
  return result;
}

}  // namespace fewbit::golden
