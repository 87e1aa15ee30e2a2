// SPDX-License-Identifier: Apache-2.0
#include "scheme/named_methods.hpp"

#include "core/ascii.hpp"

namespace fewbit {
namespace {

struct Named {
  std::string_view method;
  std::string_view text;
};

constexpr Named methods[] = {
    {"eetq", "EETQ: 8-bit rows in the order of its own kernels; named, not decoded"},
    {"aqlm", "AQLM: sums of learned codebooks' vectors; named, not decoded"},
    {"quip", "QuIP#: lattice codes of rotated weights; named, not decoded"},
    {"quip#", "QuIP#: lattice codes of rotated weights; named, not decoded"},
    {"quip_sharp", "QuIP#: lattice codes of rotated weights; named, not decoded"},
    {"spqr",
     "SpQR: dense codes of two levels with sparse outliers beside them; named, not decoded"},
    {"vptq",
     "VPTQ: indices into learned vectors, with residuals and permutations; named, not decoded"},
    {"higgs", "HIGGS: grid codes of Hadamard-rotated weights; named, not decoded"},
    {"paroquant", "ParoQuant: GPTQ-like codes of rotated weights; named, not decoded"},
    {"qqq", "QQQ: 4-bit codes in the order of its own kernel; named, not decoded"},
    {"fp_quant", "FP-Quant: 4-bit floats of Hadamard-rotated weights; named, not decoded"},
    {"svdquant",
     "SVDQuant: 4-bit codes in a kernel's order with a low-rank part; named, not decoded"},
    {"nunchaku",
     "SVDQuant: 4-bit codes in a kernel's order with a low-rank part; named, not decoded"},
    {"marlin",
     "Marlin: 4-bit codes in the order of its GPU kernel (B, s); named, not decoded; the GPTQ "
     "checkpoint that it was made from is"},
    {"gptq_marlin_24",
     "Marlin with 2:4 sparsity: codes and indices in the order of its GPU kernel; named, not "
     "decoded"},
    {"quanto", "Quanto: tensors of its own Python classes; named, not decoded"},
    {"msmodelslim",
     "Ascend's msModelSlim: integers with scales and offsets in the order of its NPU's kernels, a "
     "type a tensor; named, not decoded"},
    {"neural-compressor",
     "Intel Neural Compressor (qconfig.json): the order of its words hangs on settings of the "
     "export and the device, which no file states; named, not decoded"},
    {"ascend",
     "Ascend's msModelSlim: integers with scales and offsets in the order of its NPU's kernels, a "
     "type a tensor; named, not decoded"},
    {"humming",
     "Humming: words of codes of any width with scales and zero points in the order of its GPU "
     "kernels; named, not decoded"},
    {"jang",
     "JANG: words of another width for each tensor, by a table of its own; named, not decoded"},
    {"mlx",
     "MLX: words along the rows with a scale, and mostly a bias, a group; without its config, "
     "which tells their width and mode, they are not decoded"},
};

constexpr std::string_view bitsandbytes =
    "bitsandbytes: without codes and scales in the file its weights are quantized while loading; "
    "saved NF4 and 8-bit weights are decoded";
constexpr std::string_view fp8 =
    "FP8: no tensor has FP8 codes, so the weights would be quantized while loading";
constexpr std::string_view hqq =
    "HQQ: codes, scales and zeros stand in tensors that only its own meta data puts together; "
    "named, not decoded";
constexpr std::string_view torchao =
    "torchao: tensors of its own Python classes, flattened under names of their own; named, not "
    "decoded";
constexpr std::string_view exl2 =
    "EXL2: groups of different widths with packed scales; named, not decoded";
constexpr std::string_view exl3 =
    "EXL3: trellis codes of Hadamard-rotated weights; its bits are the last dimension / 16; named, "
    "not decoded";
constexpr std::string_view ternary =
    "BitNet: without packed codes in the file its weights are made ternary while loading; packed "
    "ones are decoded";

}  // namespace

std::string named_method_text(const std::string& method) {
  const std::string lower = lower_ascii(method);
  for (const Named& named : methods) {
    if (named.method == lower) return std::string(named.text);
  }
  return "";
}

std::string named_producer_text(Producer producer) {
  switch (producer) {
    case Producer::bitsandbytes:
      return std::string(bitsandbytes);
    case Producer::fp8:
      return std::string(fp8);
    case Producer::hqq:
      return std::string(hqq);
    case Producer::torchao:
      return std::string(torchao);
    case Producer::exl2:
      return std::string(exl2);
    case Producer::exl3:
      return std::string(exl3);
    case Producer::ternary:
      return std::string(ternary);
    default:
      return "";
  }
}

}  // namespace fewbit
