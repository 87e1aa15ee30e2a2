// SPDX-License-Identifier: Apache-2.0
// Names of schemes, producers, roles and activations.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "checkpoint/gguf_types.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {
namespace {

// "e2m1" for f4_e2m1: the width is said by the format's name already.
std::string_view short_dtype(DType dtype) {
  const std::string_view name = dtype_name(dtype);
  for (const std::string_view prefix : {"f4_", "f6_", "f8_"}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

// "NVFP4", "MXFP4", "FP8", "INT4" … from what the scheme is made of.
std::string format_name(const Scheme& scheme) {
  const bool mx = scheme.scale && scheme.scale->dtype == DType::f8_e8m0 &&
                  scheme.scale->granularity == Granularity{1, 32};
  switch (scheme.weight) {
    case DType::f4_e2m1:
      return mx ? "MXFP4" : "NVFP4";
    case DType::f6_e2m3:
    case DType::f6_e3m2:
      return "MXFP6";
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f8_e4m3fnuz:
    case DType::f8_e5m2fnuz:
      return mx ? "MXFP8" : "FP8";
    case DType::nf3:
      return "NF3";
    case DType::i4:
      return mx ? "MXINT4" : "INT4";
    case DType::u1:
    case DType::u2:
    case DType::u3:
    case DType::u4:
    case DType::u5:
    case DType::u6:
    case DType::u7:
    case DType::i8:
    case DType::u8:
      return fmt::format("INT{}", dtype_bits(scheme.weight));
    default:
      return std::string(dtype_name(scheme.weight));
  }
}

std::string granularity_text(const Granularity& g) {
  if (g.rows == 0 && g.cols == 0) return "a tensor";
  if (g.rows == 1 && g.cols == 0) return "a row";
  if (g.rows == 0 && g.cols == 1) return "a column";
  if (g.cols == 0) return fmt::format("a run of {} rows", g.rows);
  if (g.rows == 1) return fmt::format("a group of {}", g.cols);
  return fmt::format("a block of {}x{}", g.rows, g.cols);
}

constexpr std::array<std::pair<std::string_view, Activation>, 10> activation_spellings = {{
    {"silu", Activation::silu},
    {"swiglu", Activation::silu},
    {"swish", Activation::silu},
    {"swigluoai", Activation::swigluoai},
    {"swigluoai_uninterleave", Activation::swigluoai},
    {"relu2", Activation::relu2},
    {"gelu", Activation::gelu},
    {"gelu_tanh", Activation::gelu_tanh},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh},
}};

}  // namespace

const char* producer_name(Producer producer) {
  switch (producer) {
    case Producer::unquantized:
      return "unquantized";
    case Producer::modelopt:
      return "ModelOpt";
    case Producer::compressed_tensors:
      return "compressed-tensors";
    case Producer::gptq:
      return "GPTQ";
    case Producer::awq:
      return "AWQ";
    case Producer::auto_round:
      return "AutoRound";
    case Producer::fp8:
      return "FP8";
    case Producer::mxfp4:
      return "MXFP4";
    case Producer::quark:
      return "Quark";
    case Producer::bitsandbytes:
      return "bitsandbytes";
    case Producer::hqq:
      return "HQQ";
    case Producer::torchao:
      return "torchao";
    case Producer::exl2:
      return "EXL2";
    case Producer::exl3:
      return "EXL3";
    case Producer::gguf:
      return "GGUF";
    case Producer::nf3:
      return "NF3";
    case Producer::ternary:
      return "ternary";
    case Producer::mlx:
      return "MLX";
    case Producer::unknown:
      return "unknown";
  }
  return "unknown";
}

const char* role_name(Role role) {
  switch (role) {
    case Role::router:
      return "router";
    case Role::router_bias:
      return "router_bias";
    case Role::gate_proj:
      return "gate_proj";
    case Role::up_proj:
      return "up_proj";
    case Role::down_proj:
      return "down_proj";
    case Role::gate_up_proj:
      return "gate_up_proj";
    case Role::shared_gate_proj:
      return "shared_gate_proj";
    case Role::shared_up_proj:
      return "shared_up_proj";
    case Role::shared_down_proj:
      return "shared_down_proj";
    case Role::shared_gate_up_proj:
      return "shared_gate_up_proj";
    case Role::latent_proj:
      return "latent_proj";
    case Role::shared_expert_gate:
      return "shared_expert_gate";
    case Role::q_proj:
      return "q_proj";
    case Role::k_proj:
      return "k_proj";
    case Role::v_proj:
      return "v_proj";
    case Role::o_proj:
      return "o_proj";
    case Role::attention_other:
      return "attention_other";
    case Role::norm:
      return "norm";
    case Role::embedding:
      return "embedding";
    case Role::head:
      return "head";
    case Role::other:
      return "other";
  }
  return "other";
}

std::string scheme_text(const Scheme& scheme) {
  if (!scheme.quantized()) return std::string(dtype_name(scheme.weight));
  if (scheme.producer == Producer::unknown) return "unknown quantization";
  std::string text = producer_name(scheme.producer);
  if (scheme.ggml_type) return text + " " + gguf_type_name(*scheme.ggml_type);
  const std::string format = format_name(scheme);
  if (format != text) text += " " + format;
  text += fmt::format(" ({}", short_dtype(scheme.weight));
  if (scheme.scale) {
    text += fmt::format(", {} scale {}", short_dtype(scheme.scale->dtype),
                        granularity_text(scheme.scale->granularity));
    if (scheme.scale->has_global) text += ", f32 global";
  }
  if (scheme.zero_points) text += ", zero points";
  if (scheme.act_order != ActOrder::none) text += ", activation order";
  if (scheme.pre_quant_scale) text += ", activations scaled a column";
  if (scheme.activation) text += fmt::format(", {} activations", short_dtype(*scheme.activation));
  return text + ")";
}

Scheme nvfp4_scheme(Producer producer) {
  Scheme scheme;
  scheme.producer = producer;
  scheme.weight = DType::f4_e2m1;
  scheme.packing = Packing::nibbles_k;
  scheme.scale = ScaleSpec{DType::f8_e4m3, Granularity{1, 16}, true, ScaleDirection::multiply};
  return scheme;
}

Scheme plain_scheme(DType dtype) {
  Scheme scheme;
  scheme.weight = dtype;
  return scheme;
}

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::swigluoai:
      return "swigluoai";
    case Activation::relu2:
      return "relu2";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
  }
  return "silu";
}

Result<Activation> activation_from_name(std::string_view name) {
  std::string known;
  for (const auto& [spelling, activation] : activation_spellings) {
    if (spelling == name) return activation;
    known += (known.empty() ? "" : ", ") + std::string(spelling);
  }
  return Error{ErrorCode::unsupported,
               fmt::format("unknown activation \"{}\"; known: {}", name, known), ""};
}

bool activation_gated(Activation activation) { return activation != Activation::relu2; }

}  // namespace fewbit
