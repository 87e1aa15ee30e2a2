// SPDX-License-Identifier: Apache-2.0
// Names of enumerators in a manifest. They are part of its format: never change one.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fewbit/scheme.hpp"
#include "fewbit/selection.hpp"
#include "select/moe_plan.hpp"

namespace fewbit {

template <class Enum, std::size_t count>
using EnumNames = std::array<std::pair<Enum, std::string_view>, count>;

inline constexpr EnumNames<Producer, 19> producer_names{{
    {Producer::unquantized, "unquantized"},
    {Producer::modelopt, "modelopt"},
    {Producer::compressed_tensors, "compressed_tensors"},
    {Producer::gptq, "gptq"},
    {Producer::awq, "awq"},
    {Producer::auto_round, "auto_round"},
    {Producer::fp8, "fp8"},
    {Producer::mxfp4, "mxfp4"},
    {Producer::quark, "quark"},
    {Producer::bitsandbytes, "bitsandbytes"},
    {Producer::hqq, "hqq"},
    {Producer::torchao, "torchao"},
    {Producer::exl2, "exl2"},
    {Producer::exl3, "exl3"},
    {Producer::gguf, "gguf"},
    {Producer::nf3, "nf3"},
    {Producer::ternary, "ternary"},
    {Producer::unknown, "unknown"},
    {Producer::mlx, "mlx"},
}};
inline constexpr EnumNames<Packing, 13> packing_names{{
    {Packing::none, "none"},
    {Packing::nibbles_k, "nibbles_k"},
    {Packing::nibbles_n, "nibbles_n"},
    {Packing::words_row, "words_row"},
    {Packing::words_k, "words_k"},
    {Packing::words_k_minus, "words_k_minus"},
    {Packing::words_n, "words_n"},
    {Packing::words_gemv, "words_gemv"},
    {Packing::shorts_gemv, "shorts_gemv"},
    {Packing::quarters_n, "quarters_n"},
    {Packing::flat_high, "flat_high"},
    {Packing::blocks, "blocks"},
    {Packing::ggml, "ggml"},
}};
inline constexpr EnumNames<ActOrder, 3> act_order_names{{
    {ActOrder::none, "none"},
    {ActOrder::static_groups, "static_groups"},
    {ActOrder::group, "group"},
}};
inline constexpr EnumNames<ScaleDirection, 2> direction_names{{
    {ScaleDirection::multiply, "multiply"},
    {ScaleDirection::divide, "divide"},
}};
inline constexpr EnumNames<Activation, 5> activation_names{{
    {Activation::silu, "silu"},
    {Activation::swigluoai, "swigluoai"},
    {Activation::relu2, "relu2"},
    {Activation::gelu, "gelu"},
    {Activation::gelu_tanh, "gelu_tanh"},
}};
inline constexpr EnumNames<RouterWeightSide, 2> side_names{{
    {RouterWeightSide::output, "output"},
    {RouterWeightSide::input, "input"},
}};
inline constexpr EnumNames<BufferUse, 3> use_names{{
    {BufferUse::packed, "packed"},
    {BufferUse::verbatim, "verbatim"},
    {BufferUse::at_open, "at_open"},
}};
inline constexpr EnumNames<Routing, 9> routing_names{{
    {Routing::softmax, "softmax"},
    {Routing::renormalize, "renormalize"},
    {Routing::deepseek_v3, "deepseek_v3"},
    {Routing::llama4, "llama4"},
    {Routing::sigmoid, "sigmoid"},
    {Routing::sigmoid_renormalize, "sigmoid_renormalize"},
    {Routing::minimax2, "minimax2"},
    {Routing::sqrt_softplus, "sqrt_softplus"},
    {Routing::other, "other"},
}};
inline constexpr EnumNames<TokenExchange, 7> exchange_names{{
    {TokenExchange::none, "none"},
    {TokenExchange::allgather, "allgather"},
    {TokenExchange::deepep_high_throughput, "deepep_high_throughput"},
    {TokenExchange::deepep_low_latency, "deepep_low_latency"},
    {TokenExchange::nixl, "nixl"},
    {TokenExchange::flashinfer_one_sided, "flashinfer_one_sided"},
    {TokenExchange::flashinfer_two_sided, "flashinfer_two_sided"},
}};

template <class Enum, std::size_t count>
std::string_view enum_name(const EnumNames<Enum, count>& names, Enum value) {
  for (const auto& [each, name] : names) {
    if (each == value) return name;
  }
  return "unknown";
}

template <class Enum, std::size_t count>
std::optional<Enum> enum_value(const EnumNames<Enum, count>& names, std::string_view text) {
  for (const auto& [each, name] : names) {
    if (name == text) return each;
  }
  return std::nullopt;
}

template <class Enum, std::size_t count>
std::string known_names(const EnumNames<Enum, count>& names) {
  std::string text;
  for (const auto& [each, name] : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace fewbit
