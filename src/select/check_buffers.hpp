// SPDX-License-Identifier: Apache-2.0
// Checks of a layer's run arguments; every message has the numbers of both sides.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fewbit/tensor.hpp"

namespace fewbit {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::bf16;
};

// 0 <= tokens <= max_tokens.
Result<void> check_tokens(const std::string& where, std::int64_t tokens, std::int64_t max_tokens);
// CPU memory of that dtype and shape, aligned to its elements.
Result<void> check_input(const std::string& where, const char* name, const TensorView& view,
                         const Matrix& expected, DeviceKind memory = DeviceKind::cpu);
Result<void> check_output(const std::string& where, const char* name,
                          std::span<const std::byte> bytes, const Matrix& expected);
// At least `needed` bytes, aligned to 64.
Result<void> check_workspace(const std::string& where, std::span<const std::byte> workspace,
                             std::uint64_t needed, std::uint64_t alignment = 64);
// No two of the three overlap.
Result<void> check_apart(const std::string& where, std::span<const std::byte> input,
                         std::span<const std::byte> output, std::span<const std::byte> workspace);

}  // namespace fewbit
