// SPDX-License-Identifier: Apache-2.0
#include "canonical/one_global.hpp"

#include <fmt/format.h>

#include <array>
#include <bitset>
#include <cmath>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

using Codes = std::bitset<256>;

Codes codes_of(const QuantizedTensor& tensor) {
  Codes codes;
  for (const std::byte code : tensor.scales.view.bytes)
    codes.set(std::to_integer<std::size_t>(code));
  return codes;
}

// The e4m3 code of s' with s' * to = s * from. Four bits times 24 are exact in double.
std::optional<std::uint8_t> moved(std::uint8_t code, float from, float to) {
  const float scale = f8_e4m3_to_f32(code);
  if (std::isnan(scale)) return code;
  const double value = double{scale} * double{from};
  const std::uint8_t near = f32_to_f8_e4m3_sat(static_cast<float>(value / double{to}));
  const float rounded = f8_e4m3_to_f32(near);
  const bool exact =
      double{rounded} * double{to} == value && std::signbit(rounded) == std::signbit(scale);
  return exact ? std::optional(near) : std::nullopt;
}

bool all_move(const Codes& codes, float from, float to) {
  if (from == to) return true;
  for (std::size_t code = 0; code < codes.size(); ++code) {
    if (codes[code] && !moved(static_cast<std::uint8_t>(code), from, to)) return false;
  }
  return true;
}

Result<Tensor> moved_scales(const QuantizedTensor& tensor, float to) {
  std::array<std::uint8_t, 256> codes{};
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = moved(static_cast<std::uint8_t>(code), tensor.global_scale, to).value_or(0);
  }
  const TensorView& from = tensor.scales.view;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(from.dtype, from.shape));
  for (std::size_t i = 0; i < from.bytes.size(); ++i) {
    out.bytes[i] = static_cast<std::byte>(codes[std::to_integer<std::size_t>(from.bytes[i])]);
  }
  return out.tensor;
}

bool has_global(const QuantizedTensor& tensor) {
  return tensor.scheme.scale && tensor.scheme.scale->has_global &&
         tensor.scales.view.dtype == DType::f8_e4m3;
}

}  // namespace

std::optional<float> one_global(const QuantizedTensor& a, const QuantizedTensor& b) {
  if (a.global_scale == b.global_scale) return a.global_scale;
  // e4m3 has exponents from -9 to 8.
  constexpr int most_steps = 17;
  const Codes of_a = codes_of(a);
  const Codes of_b = codes_of(b);
  for (int step = 0; step <= most_steps; ++step) {
    for (const float own : {a.global_scale, b.global_scale}) {
      for (const int power : {step, -step}) {
        const float to = std::ldexp(own, power);
        if (!std::isnormal(to)) continue;
        if (all_move(of_a, a.global_scale, to) && all_move(of_b, b.global_scale, to)) return to;
      }
    }
  }
  return std::nullopt;
}

bool keeps_two_globals(const ExpertWeights& expert) {
  if (!expert.gate || !has_global(*expert.gate) || !has_global(expert.up)) return false;
  return !one_global(*expert.gate, expert.up);
}

Result<ExpertWeights> with_one_global(const ExpertWeights& expert) {
  if (!expert.gate || expert.gate->global_scale == expert.up.global_scale) return expert;
  const std::optional<float> global = one_global(*expert.gate, expert.up);
  if (!global) {
    return Error{ErrorCode::unsupported,
                 fmt::format("gate and up have different global scales, {} and {}, that block "
                             "scales can't make one exactly: the kernels have one for both",
                             expert.gate->global_scale, expert.up.global_scale),
                 "w13"};
  }
  ExpertWeights out = expert;
  for (QuantizedTensor* tensor : {&*out.gate, &out.up}) {
    if (tensor->global_scale == *global) continue;
    FEWBIT_TRY(tensor->scales, moved_scales(*tensor, *global));
    tensor->global_scale = *global;
  }
  return out;
}

}  // namespace fewbit
