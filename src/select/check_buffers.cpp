// SPDX-License-Identifier: Apache-2.0
#include "select/check_buffers.hpp"

#include <fmt/format.h>

#include <functional>
#include <optional>

#include "core/checked.hpp"

namespace fewbit {
namespace {

Error bad(const std::string& where, std::string what) {
  return Error{ErrorCode::invalid_argument, std::move(what), where};
}

// Bytes past the last multiple of `alignment`.
std::uint64_t misalignment(std::span<const std::byte> bytes, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment;
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> less;
  return !a.empty() && !b.empty() && less(a.data(), b.data() + b.size()) &&
         less(b.data(), a.data() + a.size());
}

// A call that is in order takes no memory: shapes become text only in errors.
bool has_shape(const TensorView& view, const Matrix& expected) {
  return view.shape.size() == 2 && view.shape[0] == expected.rows && view.shape[1] == expected.cols;
}

std::string matrix_text(const Matrix& matrix) {
  return fmt::format("{} {}", dtype_name(matrix.dtype),
                     shape_text(Shape{matrix.rows, matrix.cols}));
}

}  // namespace

Result<void> check_tokens(const std::string& where, std::int64_t tokens, std::int64_t max_tokens) {
  if (tokens >= 0 && tokens <= max_tokens) return {};
  return bad(where, fmt::format("{} tokens, expected 0 to max_tokens {}", tokens, max_tokens));
}

Result<void> check_input(const std::string& where, const char* name, const TensorView& view,
                         const Matrix& expected, DeviceKind memory) {
  if (view.device.kind != memory) {
    return bad(where, fmt::format("{} is in CUDA memory, expected CPU memory", name));
  }
  if (view.dtype != expected.dtype || !has_shape(view, expected)) {
    return bad(where, fmt::format("{} is {} {}, expected {}", name, dtype_name(view.dtype),
                                  shape_text(view.shape), matrix_text(expected)));
  }
  return check_output(where, name, view.bytes, expected);
}

Result<void> check_output(const std::string& where, const char* name,
                          std::span<const std::byte> bytes, const Matrix& expected) {
  const auto element = static_cast<std::uint64_t>(dtype_bits(expected.dtype)) / 8;
  const auto elements = checked_mul(static_cast<std::uint64_t>(expected.rows),
                                    static_cast<std::uint64_t>(expected.cols));
  const auto size = elements ? checked_mul(*elements, element) : std::nullopt;
  if (!size) return bad(where, fmt::format("{} of {} is too large", name, matrix_text(expected)));
  if (bytes.size() != *size) {
    return bad(where, fmt::format("{} holds {} bytes, expected {} ({})", name, bytes.size(), *size,
                                  matrix_text(expected)));
  }
  if (const std::uint64_t off = misalignment(bytes, element); off != 0) {
    return bad(where, fmt::format("{} is {} byte past a multiple of {}", name, off, element));
  }
  return {};
}

Result<void> check_workspace(const std::string& where, std::span<const std::byte> workspace,
                             std::uint64_t needed, std::uint64_t alignment) {
  if (workspace.size() < needed) {
    return bad(where, fmt::format("workspace of {} bytes, expected at least {}", workspace.size(),
                                  needed));
  }
  if (const std::uint64_t off = misalignment(workspace, alignment); off != 0) {
    return bad(where, fmt::format("workspace is {} bytes past a multiple of {}", off, alignment));
  }
  return {};
}

Result<void> check_apart(const std::string& where, std::span<const std::byte> input,
                         std::span<const std::byte> output, std::span<const std::byte> workspace) {
  if (overlap(input, output)) return bad(where, "input and output overlap");
  if (overlap(input, workspace)) return bad(where, "input and workspace overlap");
  if (overlap(output, workspace)) return bad(where, "output and workspace overlap");
  return {};
}

}  // namespace fewbit
