// SPDX-License-Identifier: Apache-2.0
// AMD Quark. Its names are those of ModelOpt, so the config must say Quark. FP8 is read with that
// of all other producers.
#include <fmt/format.h>

#include "core/checked.hpp"
#include "core/quote.hpp"
#include "scheme/fp4.hpp"
#include "scheme/int8.hpp"
#include "scheme/quark_config.hpp"

namespace fewbit {
namespace {

// The activations' type that global_quant_config asks for.
std::optional<DType> activation_of(const Json& block) {
  const Json* global = block.find("global_quant_config");
  const Json* inputs = global != nullptr ? global->find("input_tensors") : nullptr;
  // A list describes several steps; the last one is the finest.
  if (inputs != nullptr && inputs->as_array() != nullptr && !inputs->as_array()->empty()) {
    inputs = &inputs->as_array()->front();
  }
  const Json* dtype = inputs != nullptr ? inputs->find("dtype") : nullptr;
  const std::string* name = dtype != nullptr ? dtype->as_string() : nullptr;
  if (name == nullptr) return std::nullopt;
  if (name->ends_with("fp4")) return DType::f4_e2m1;
  if (name->ends_with("fp8_e4m3")) return DType::f8_e4m3;
  if (name->ends_with("fp8_e5m2")) return DType::f8_e5m2;
  if (name->ends_with("int8")) return DType::i8;
  return std::nullopt;
}

// Codes of 6 bits [.., n, 3k/4] with scales [.., n, k/32].
bool is_mxfp6(const TensorInfo& weight, const TensorInfo& scale) {
  if (weight.shape.size() < 2 || weight.shape.size() != scale.shape.size()) return false;
  const auto bytes = checked_mul(scale.shape.back(), std::int64_t{24});
  return bytes && *bytes == weight.shape.back();
}

void refuse(Draft& draft, DType weight, std::string why) {
  Scheme scheme;
  scheme.producer = Producer::quark;
  scheme.weight = weight;
  draft.refuse(scheme, std::move(why));
}

// Which 6-bit codes they are is said by the config alone.
void refuse_mxfp6(const Inventory& inventory, Draft& draft) {
  const auto config = read_quark_config(inventory.declared);
  const auto said = config ? config->weight_of(draft.module) : std::nullopt;
  const std::string_view name = said ? std::string_view(said->dtype) : std::string_view();
  const bool e3m2 = name.ends_with("e3m2");
  const bool known = e3m2 || name.ends_with("e2m3");
  refuse(draft, e3m2 ? DType::f6_e3m2 : DType::f6_e2m3,
         fmt::format("Quark MXFP6: the order of the bits in its bytes is not published{}, so it is "
                     "not read",
                     known ? "" : ", and whether they are e2m3 or e3m2 stands nowhere"));
}

// Words of 4-bit codes, whose order in a word is that of a kernel.
void refuse_words(const Inventory& inventory, Draft& draft, const TensorInfo& weight) {
  const auto config = read_quark_config(inventory.declared);
  const auto said = config ? config->weight_of(draft.module) : std::nullopt;
  const std::string shape = shape_text(weight.shape);
  const bool is_signed = said && said->dtype == "int4";
  std::string what = fmt::format("Quark words of shape {}", shape);
  if (said && said->of_fp8) {
    what = fmt::format(
        "Quark INT4-FP8: words of shape {} of {} codes, with a scale each for them and "
        "for the FP8 values that they stand for",
        shape, said->dtype);
  } else if (said && said->dtype.ends_with("int4")) {
    what = fmt::format("Quark words of {}, shape {}", said->dtype, shape);
  }
  refuse(draft, is_signed ? DType::i4 : DType::u4,
         what + "; the order of the codes in a word is its kernels', so they are not read");
}

void claim(const Inventory& inventory, Draft& draft, std::optional<DType> activation) {
  const TensorInfo* weight = draft.tensor("weight");
  const TensorInfo* scale = draft.tensor("weight_scale");
  if (weight == nullptr || scale == nullptr) return;
  if (weight->dtype == DType::i8) {
    IntegerOptions options;
    options.activation = activation;
    claim_int8(inventory, draft, Producer::quark, options);
  } else if (weight->dtype == DType::u8 && is_mxfp6(*weight, *scale)) {
    refuse_mxfp6(inventory, draft);
  } else if (weight->dtype == DType::u8) {
    claim_fp4(inventory, draft, Producer::quark, activation);
  } else if (weight->dtype == DType::i32) {
    refuse_words(inventory, draft, *weight);
  }
}

}  // namespace

void claim_quark(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  if (first == nullptr || first->producer != Producer::quark) return;
  const std::optional<DType> activation = activation_of(*first->block);
  for (Draft& draft : inventory.drafts) {
    if (!draft.claimed) claim(inventory, draft, activation);
  }
}

}  // namespace fewbit
