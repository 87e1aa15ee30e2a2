// SPDX-License-Identifier: Apache-2.0
// One case of a golden set (schema "golden-manifest/1") and what an operation computes for it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit::golden {

// A tensor of the set with its logical type (f8_e4m3 where the file stores u8).
struct Expected {
  Tensor tensor;
  const Json* compare = nullptr;  // {"mode": "close", "rtol": …}
};

struct GoldenCase {
  std::string name;
  std::string op;
  const Json* params = nullptr;
  std::map<std::string, Tensor> inputs;
  std::map<std::string, Expected> outputs;

  // Errors name the case and the missing role or parameter.
  Result<Tensor> input(const std::string& role) const;
  bool has_input(const std::string& role) const { return inputs.contains(role); }
  bool wants(const std::string& role) const { return outputs.contains(role); }
  Result<std::int64_t> int_param(std::string_view key) const;
  Result<double> number_param(std::string_view key) const;
  Result<bool> bool_param(std::string_view key) const;
  Result<std::string> string_param(std::string_view key) const;
  // The input's elements as aligned T; error when the byte count doesn't fit.
  template <class T>
  Result<std::vector<T>> values(const std::string& role) const;
};

// What an operation computed, by output role. The framework compares it as the manifest says;
// a role that is missing here fails, unless the manifest marks it as information.
using Outputs = std::map<std::string, Tensor>;

// An operation runs one case through the library. A returned error is a failed case. Cases whose
// expectations stand in params (tables) are compared by the operation itself.
using OpFn = Result<Outputs> (*)(const GoldenCase&);

struct Op {
  std::string_view name;
  OpFn run;
};
// The table of operations, ops.cpp.
std::span<const Op> all_ops();

// A copy of values as a tensor.
template <class T>
Tensor tensor_of(DType dtype, Shape shape, const std::vector<T>& values);

struct Comparison {
  bool passed = false;
  std::string detail;  // where and how far off
};
// Compares one output as its manifest entry says; `outputs` for modes that pair two of them.
Comparison compare_output(const GoldenCase& golden_case, const std::string& role,
                          const Outputs& outputs);

// Loads a manifest and all tensors it names.
struct GoldenSet {
  std::string name;
  Json manifest;
  std::vector<GoldenCase> cases;
};
Result<std::unique_ptr<GoldenSet>> load_golden_set(const std::string& directory);

// ---- templates

template <class T>
Result<std::vector<T>> GoldenCase::values(const std::string& role) const {
  FEWBIT_TRY(const Tensor tensor, input(role));
  const std::span<const std::byte> bytes = tensor.view.bytes;
  if (bytes.size() % sizeof(T) != 0) {
    return Error{ErrorCode::invalid_argument,
                 std::to_string(bytes.size()) + " bytes are no array of " +
                     std::to_string(sizeof(T)) + "-byte elements",
                 name + " input " + role};
  }
  std::vector<T> out(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(out)).begin());
  return out;
}

template <class T>
Tensor tensor_of(DType dtype, Shape shape, const std::vector<T>& values) {
  auto copy = std::make_shared<std::vector<T>>(values);
  const std::span<const std::byte> bytes = std::as_bytes(std::span<const T>(*copy));
  return Tensor{TensorView{dtype, std::move(shape), bytes, {}}, std::move(copy)};
}

}  // namespace fewbit::golden
