// SPDX-License-Identifier: Apache-2.0
#include "backends/foreign/expert_matrices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/checked.hpp"
#include "core/convert.hpp"

namespace fewbit::foreign {
namespace {

bool is_signed(DType dtype) { return dtype == DType::i4 || dtype == DType::i8; }
std::int64_t bits_of(const Stack& stack) { return dtype_bits(stack.scheme().weight); }
std::int64_t middle(std::int64_t bits) { return std::int64_t{1} << (bits - 1); }

std::uint32_t load_u32(const std::byte* from) {
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void store_u32(std::span<std::byte> out, std::int64_t index, std::uint32_t word) {
  std::memcpy(out.data() + static_cast<std::size_t>(index) * sizeof word, &word, sizeof word);
}

// Words of GPTQ and AWQ and bytes hold only whole ones.
Result<void> check_whole(const Stack& stack, const char* what, std::int64_t codes,
                         std::int64_t multiple) {
  if (codes % multiple == 0) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} {}, expected a multiple of {}", codes, what, multiple), stack.name};
}

std::int64_t zero_at(const QuantizedTensor& part, std::int64_t index) {
  const TensorView& view = part.zero_points.view;
  const auto i = static_cast<std::size_t>(index);
  const std::int64_t offset =
      is_signed(part.scheme.weight) ? middle(dtype_bits(part.scheme.weight)) : 0;
  switch (view.dtype) {
    case DType::i8:
      return static_cast<std::int8_t>(view.bytes[i]) + offset;
    case DType::i32:
      return static_cast<std::int32_t>(load_u32(view.bytes.data() + i * 4)) + offset;
    default:
      return static_cast<std::uint8_t>(view.bytes[i]) + offset;
  }
}

Error bad_zero(const Stack& stack, std::int64_t zero, std::int64_t row) {
  return {
      ErrorCode::unsupported,
      fmt::format("zero point {} of row {}, expected one of {} bits", zero, row, bits_of(stack)),
      stack.name};
}

Result<std::vector<float>> scales_f32(const QuantizedTensor& part) {
  const auto count = part.scales.view.bytes.size() * 8 /
                     static_cast<std::size_t>(dtype_bits(part.scales.view.dtype));
  std::vector<float> values(count);
  FEWBIT_TRY(convert_to_f32(part.scales.view.dtype, part.scales.view.bytes, values));
  return values;
}

Result<OwnedTensor> rounded(const std::vector<float>& values, DType to, Shape shape,
                            const std::string& name) {
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(to, std::move(shape)));
  FEWBIT_TRY(convert_from_f32(values, to, out.bytes));
  std::vector<float> back(values.size());
  FEWBIT_TRY(convert_to_f32(to, out.bytes, back));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]) || std::isfinite(back[i])) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} is beyond {}", values[i], dtype_name(to)), name};
  }
  return out;
}

// Rows of every part with zeros behind, `from` bytes of `to`, which hold that many elements.
Result<OwnedTensor> padded_rows(const Stack& stack, DType dtype, std::int64_t rows, std::int64_t to,
                                std::int64_t elements, const Tensor QuantizedTensor::*part_bytes) {
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(dtype, {1, rows * std::ssize(stack.parts), elements}));
  std::int64_t at = 0;
  for (const QuantizedTensor* part : stack.parts) {
    const auto bytes = (part->*part_bytes).view.bytes;
    const auto from = bytes.size() / static_cast<std::size_t>(part->n);
    for (std::int64_t i = 0; i < part->n; ++i) {
      std::memcpy(out.bytes.data() + static_cast<std::size_t>((at + i) * to),
                  bytes.data() + static_cast<std::size_t>(i) * from, from);
    }
    at += rows;
  }
  return out;
}

Result<void> check_order_bytes(const QuantizedTensor& part, const Stack& stack) {
  const std::size_t bytes = part.g_idx.view.bytes.size();
  const auto expected = static_cast<std::size_t>(stack.columns()) * 4;
  if (bytes == 0 || bytes == expected) return {};
  return Error{ErrorCode::invalid_argument,
               fmt::format("act-order of {} bytes, expected {} for {} columns", bytes, expected,
                           stack.columns()),
               stack.name};
}

}  // namespace

std::int64_t Stack::rows() const {
  std::int64_t sum = 0;
  for (const QuantizedTensor* part : parts) sum += part->n;
  return sum;
}

Stack w13_stack(const ExpertWeights& expert, FirstPart first) {
  Stack stack{.name = "w13", .parts = {&expert.up}, .biases = {&expert.up_bias}};
  if (!expert.gate) return stack;
  const bool before = first == FirstPart::gate;
  stack.parts.insert(before ? stack.parts.begin() : stack.parts.end(), &*expert.gate);
  stack.biases.insert(before ? stack.biases.begin() : stack.biases.end(), &expert.gate_bias);
  return stack;
}

Stack w2_stack(const ExpertWeights& expert) {
  return {.name = "w2", .parts = {&expert.down}, .biases = {&expert.down_bias}};
}

Result<OwnedTensor> row_words(const Stack& stack) {
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::i32, {1, stack.rows(), stack.columns() / 8}));
  FEWBIT_TRY(unsigned_rows(stack, out.bytes));
  return out;
}

namespace {

// Eight bytes at a time: compilers leave loops over single ones as they are.
void flip_bytes(std::span<const std::byte> from, unsigned flip, std::byte* to) {
  const std::uint64_t all = 0x0101010101010101U * flip;
  std::size_t at = 0;
  for (; at + sizeof all <= from.size(); at += sizeof all) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, from.data() + at, sizeof eight);
    eight ^= all;
    std::memcpy(to + at, &eight, sizeof eight);
  }
  for (; at < from.size(); ++at) to[at] = from[at] ^ static_cast<std::byte>(flip);
}

}  // namespace

Result<void> unsigned_rows(const Stack& stack, std::span<std::byte> out) {
  FEWBIT_TRY(check_whole(stack, "columns", stack.columns(), 8));
  const auto bytes = static_cast<std::size_t>(stack.rows() * stack.columns() / 2);
  if (out.size() != bytes) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} bytes of codes, planned are {}", bytes, out.size()), stack.name};
  }
  const unsigned flip = is_signed(stack.scheme().weight) ? 0x88U : 0U;
  std::byte* to = out.data();
  for (const QuantizedTensor* part : stack.parts) {
    const auto codes = part->codes.view.bytes;
    flip_bytes(codes, flip, to);
    to += codes.size();
  }
  return {};
}

std::vector<CodeRows> code_rows(const Stack& stack) {
  std::vector<CodeRows> rows;
  std::int64_t first = 0;
  for (const QuantizedTensor* part : stack.parts) {
    rows.push_back(
        {.codes = part->codes.view.bytes, .dims = {.n = part->n, .k = part->k}, .first_n = first});
    first += part->n;
  }
  return rows;
}

Result<std::vector<std::int8_t>> zero_rows(const Stack& stack) {
  const std::int64_t most = (std::int64_t{1} << bits_of(stack)) - 1;
  std::vector<std::int8_t> zeros;
  for (const QuantizedTensor* part : stack.parts) {
    for (std::int64_t i = 0; i < part->n * stack.groups(); ++i) {
      const std::int64_t zero = zero_at(*part, i);
      if (zero < 0 || zero > most) {
        return bad_zero(stack, zero, std::ssize(zeros) / stack.groups());
      }
      zeros.push_back(static_cast<std::int8_t>(zero));
    }
  }
  return zeros;
}

Result<OwnedTensor> zero_words(const Stack& stack) {
  const std::int64_t bits = bits_of(stack);
  const std::int64_t per_word = 32 / bits;
  const std::int64_t words = stack.rows() / per_word;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::i32, {1, stack.groups(), words}));
  std::int64_t row = 0;
  for (const QuantizedTensor* part : stack.parts) {
    for (std::int64_t i = 0; i < part->n; ++i, ++row) {
      const std::int64_t slot = row % per_word;
      for (std::int64_t g = 0; g < stack.groups(); ++g) {
        const std::int64_t zero = zero_at(*part, i * stack.groups() + g);
        if (zero < 0 || zero >= std::int64_t{1} << bits) {
          return bad_zero(stack, zero, row);
        }
        const std::int64_t at = g * words + row / per_word;
        store_u32(out.bytes, at,
                  load_u32(out.bytes.data() + at * 4) | static_cast<std::uint32_t>(zero)
                                                            << (bits * slot));
      }
    }
  }
  return out;
}

Result<void> check_middle_zero(const Scheme& scheme, const std::string& where) {
  const std::int64_t bits = dtype_bits(scheme.weight);
  const std::int64_t zero = scheme.zero_point + (is_signed(scheme.weight) ? middle(bits) : 0);
  if (scheme.zero_points || zero == middle(bits)) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("zero point {} of all codes, expected {}", zero, middle(bits)), where};
}

Result<void> check_middle_zero(const Stack& stack) {
  for (const QuantizedTensor* part : stack.parts) {
    if (part->zero_points.empty()) FEWBIT_TRY(check_middle_zero(part->scheme, stack.name));
  }
  return {};
}

Result<OwnedTensor> scales_by_row(const Stack& stack, DType to) {
  std::vector<float> all;
  for (const QuantizedTensor* part : stack.parts) {
    FEWBIT_TRY(const std::vector<float> values, scales_f32(*part));
    all.insert(all.end(), values.begin(), values.end());
  }
  return rounded(all, to, {1, stack.rows(), stack.groups()}, stack.name + " scales");
}

Result<OwnedTensor> scales_by_group(const Stack& stack, DType to) {
  const auto rows = static_cast<std::size_t>(stack.rows());
  const auto groups = static_cast<std::size_t>(stack.groups());
  constexpr std::size_t tile = 64;  // rows whose scales the nearest cache holds
  std::vector<float> all(rows * groups);
  std::size_t row = 0;
  for (const QuantizedTensor* part : stack.parts) {
    FEWBIT_TRY(const std::vector<float> values, scales_f32(*part));
    const auto count = static_cast<std::size_t>(part->n);
    for (std::size_t first = 0; first < count; first += tile) {
      const std::size_t end = std::min(first + tile, count);
      for (std::size_t g = 0; g < groups; ++g) {
        float* const of_group = all.data() + g * rows + row;
        for (std::size_t i = first; i < end; ++i) of_group[i] = values[i * groups + g];
      }
    }
    row += count;
  }
  return rounded(all, to, {1, stack.groups(), stack.rows()}, stack.name + " scales");
}

Result<OwnedTensor> bias_of(const Stack& stack, DType to) {
  return bias_of(stack, to, stack.parts.front()->n);
}

Result<OwnedTensor> bias_of(const Stack& stack, DType to, std::int64_t part_rows) {
  std::vector<float> all;
  for (std::size_t i = 0; i < stack.parts.size(); ++i) {
    const auto& bias = *stack.biases[i];
    if (static_cast<std::int64_t>(bias.size()) != stack.parts[i]->n) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("a bias of {} values for {} rows", bias.size(), stack.parts[i]->n),
                   stack.name};
    }
    all.insert(all.end(), bias.begin(), bias.end());
    all.resize((i + 1) * static_cast<std::size_t>(part_rows));
  }
  return rounded(all, to, {1, std::ssize(all)}, stack.name + " bias");
}

Result<OwnedTensor> group_index(const Stack& stack) {
  for (const QuantizedTensor* part : stack.parts) FEWBIT_TRY(check_order_bytes(*part, stack));
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::i32, {1, stack.columns()}));
  const QuantizedTensor& first = *stack.parts.front();
  for (std::int64_t k = 0; k < stack.columns(); ++k) {
    const std::int32_t group = group_of_column(first, k);
    for (const QuantizedTensor* part : stack.parts) {
      if (group_of_column(*part, k) == group) continue;
      return Error{ErrorCode::invalid_argument,
                   fmt::format("its parts have different act-orders, and the kernels one for both: "
                               "column {} is in group {} of the first and in group {} of another",
                               k, group, group_of_column(*part, k)),
                   stack.name};
    }
    store_u32(out.bytes, k, static_cast<std::uint32_t>(group));
  }
  return out;
}

Result<OwnedTensor> code_bytes(const Stack& stack, Padding padded) {
  const std::int64_t bytes = padded.columns / 2;
  return padded_rows(stack, DType::u8, padded.rows, bytes, bytes, &QuantizedTensor::codes);
}

Result<OwnedTensor> scale_bytes(const Stack& stack, Padding padded) {
  const std::int64_t groups = padded.columns / stack.group();
  return padded_rows(stack, stack.scheme().scale->dtype, padded.rows, groups, groups,
                     &QuantizedTensor::scales);
}

Result<OwnedTensor> element_rows(const Stack& stack) {
  const DType dtype = stack.scheme().weight;
  return padded_rows(stack, dtype, stack.parts.front()->n, stack.columns() * dtype_bits(dtype) / 8,
                     stack.columns(), &QuantizedTensor::codes);
}

Result<OwnedTensor> fp8_scales(const Stack& stack) {
  constexpr std::int64_t block = 128;
  const Granularity grid = stack.scheme().scale->granularity;
  std::vector<float> all;
  for (const QuantizedTensor* part : stack.parts) {
    if (grid.rows > 1 && stack.parts.size() > 1 && part->n % block != 0) {
      return Error{
          ErrorCode::unsupported,
          fmt::format("blocks of {} rows in {} rows of gate and of up, expected a multiple", block,
                      part->n),
          stack.name};
    }
    FEWBIT_TRY(std::vector<float> values, scales_f32(*part));
    for (float& value : values) value *= part->global_scale;
    if (grid.rows == 0) values.assign(static_cast<std::size_t>(part->n), values.front());
    all.insert(all.end(), values.begin(), values.end());
  }
  const std::int64_t columns = grid.rows > 1 ? ceil_div(stack.columns(), block) : 1;
  Shape shape = {1, std::ssize(all) / columns};
  if (grid.rows > 1) shape.push_back(columns);
  return rounded(all, DType::f32, std::move(shape), stack.name + " scales");
}

Result<std::span<std::byte>> planned_share(const MoePlan& plan, ExpertSpans to,
                                           std::string_view name) {
  const std::int64_t index = plan.index(name);
  if (index >= 0) return to[static_cast<std::size_t>(index)];
  return Error{ErrorCode::invalid_argument,
               fmt::format("an expert has a {}, but the first has none", name), ""};
}

Result<void> put(const MoePlan& plan, ExpertSpans to, std::string_view name,
                 std::span<const std::byte> bytes) {
  FEWBIT_TRY(const std::span<std::byte> share, planned_share(plan, to, name));
  if (share.size() != bytes.size()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} of {} bytes, planned are {}", name, bytes.size(), share.size()),
                 ""};
  }
  if (!bytes.empty()) std::memcpy(share.data(), bytes.data(), bytes.size());
  return {};
}

}  // namespace fewbit::foreign
