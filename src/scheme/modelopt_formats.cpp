// SPDX-License-Identifier: Apache-2.0
#include "scheme/modelopt_formats.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/checked.hpp"
#include "core/float_types.hpp"
#include "scheme/fused_experts.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/scale_fit.hpp"

namespace fewbit {
namespace {

std::int64_t last(const TensorInfo& info) { return info.shape.empty() ? 1 : info.shape.back(); }
std::int64_t rows(const TensorInfo& info) {
  return info.shape.size() < 2 ? 1 : info.shape[info.shape.size() - 2];
}
bool is_byte(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }
bool is_e8m0(DType dtype) { return dtype == DType::f8_e8m0 || dtype == DType::u8; }

// Bytes of a group of 32 codes along k.
bool groups_of_32(const TensorInfo& weight, const TensorInfo& scale, std::int64_t bytes) {
  return rows(weight) == rows(scale) && last(weight) % (bytes / 2) == 0 &&
         ceil_div(last(weight), bytes) == last(scale);
}

// Sizes of the matrix behind the stored codes; empty when the scales do not fit it.
struct Sizes {
  std::int64_t experts = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

class Claim {
 public:
  Claim(const Inventory& inventory, Draft& draft) : inventory_(inventory), draft_(draft) {
    scheme_.producer = Producer::modelopt;
    scheme_.pre_quant_scale = draft.has("pre_quant_scale");
  }

  // packing: how codes stand in the file; n_pack and k_pack: codes a byte along either axis.
  void run(DType weight, Packing packing, std::int64_t n_pack, std::int64_t k_pack) {
    scheme_.weight = weight;
    scheme_.packing = packing;
    std::string obstacle = find_obstacle(n_pack, k_pack);
    if (obstacle.empty()) {
      draft_.claim(scheme_);
    } else {
      draft_.refuse(scheme_, std::move(obstacle));
    }
  }

  void refuse(DType weight, std::string why) {
    scheme_.weight = weight;
    draft_.refuse(scheme_, std::move(why));
  }

  void set_activation(DType dtype) { scheme_.activation = dtype; }
  // weight_scale_2 of W4A8 is for products in 8 bits; the codes are made with weight_scale.
  void allow_second_scale() { second_scale_ = true; }

 private:
  std::string find_obstacle(std::int64_t n_pack, std::int64_t k_pack) {
    const TensorInfo& weight = *draft_.tensor("weight");
    Module& module = draft_.module;
    if (weight.shape.size() < 2 || weight.shape.size() > 3) {
      return fmt::format("codes of shape {}, expected two or three dimensions",
                         shape_text(weight.shape));
    }
    const auto n = checked_mul(rows(weight), n_pack);
    const auto k = checked_mul(last(weight), k_pack);
    module.n = n.value_or(0);
    module.k = k.value_or(0);
    if (weight.shape.size() == 3) module.experts = weight.shape[0];
    const bool no_experts = weight.shape.size() == 3 && module.experts < 1;
    if (module.n < 1 || module.k < 1 || no_experts) {
      return fmt::format("codes of shape {} hold no matrix", shape_text(weight.shape));
    }
    if (module.experts > 0) {
      if (module.expert != all_experts) {
        return fmt::format("weight of shape {} in a module that does not hold all experts",
                           shape_text(weight.shape));
      }
      std::string order =
          plain_fused_obstacle(inventory_, module, {module.experts, module.n, module.k});
      if (!order.empty()) return order;
    }
    return read_scale();
  }

  std::string read_scale() {
    const Module& module = draft_.module;
    const TensorInfo* scale = draft_.tensor("weight_scale");
    if (scale == nullptr) return "codes without weight_scale";
    const ScaledMatrix matrix{module.experts, module.n, module.k, false, is_pair(module)};
    const auto fit = fit_scale(matrix, scale->shape, std::nullopt);
    const bool bytes = scheme_.weight == DType::f4_e2m1 && is_e8m0(scale->dtype);
    const bool misfit = bytes && last(*scale) != ceil_div(module.k, std::int64_t{32});
    if (!fit || fit->granularity.rows > 1 || misfit) {
      return fmt::format("weight_scale of shape {} for a matrix [{}, {}], expected {}",
                         shape_text(scale->shape), module.n, module.k, expected_text(bytes));
    }
    DType dtype = scale->dtype;
    if (scheme_.weight == DType::f4_e2m1 && dtype == DType::u8) dtype = DType::f8_e8m0;
    const bool known = is_16_or_32_bit_float(dtype) ||
                       (dtype == DType::f8_e8m0 && scheme_.weight == DType::f4_e2m1);
    if (!known) {
      return fmt::format("weight_scale is {}, expected {}", dtype_name(scale->dtype),
                         scheme_.weight == DType::f4_e2m1 ? "u8 or f8_e8m0" : "f32, f16 or bf16");
    }
    Granularity granularity = fit->granularity;
    // A row of at most 32 columns is one group.
    if (dtype == DType::f8_e8m0) granularity = {1, 32};
    scheme_.scale = ScaleSpec{dtype, granularity, false, ScaleDirection::multiply};
    constexpr std::string_view applied[] = {"weight_scale", "pre_quant_scale", "weight_scale_2"};
    return unapplied_text(draft_, "ModelOpt", std::span(applied).first(second_scale_ ? 3 : 2));
  }

  std::string expected_text(bool bytes) const {
    const Module& module = draft_.module;
    const auto of = [&](std::int64_t size) {
      return fmt::format("{}: {}", size,
                         group_scales_text(module.experts, module.n, module.k, size));
    };
    if (bytes) return "a byte a group of " + of(32);
    return "one a row or a group along the columns, such as of " + of(128);
  }

  const Inventory& inventory_;
  Draft& draft_;
  Scheme scheme_;
  bool second_scale_ = false;
};

enum class Family { none, fp8, mxfp8, nvfp4, mxfp4, int4, int8 };

Family family_of(const Scheme& scheme) {
  const bool e8m0 = scheme.scale && scheme.scale->dtype == DType::f8_e8m0;
  switch (scheme.weight) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return e8m0 ? Family::mxfp8 : Family::fp8;
    case DType::f4_e2m1:
      return e8m0 ? Family::mxfp4 : Family::nvfp4;
    case DType::i4:
      return Family::int4;
    case DType::i8:
      return Family::int8;
    default:
      return Family::none;
  }
}

Family family_of(const std::string& algorithm) {
  struct Name {
    std::string_view text;
    Family family;
  };
  // "MXFP8" holds "FP8", so the longer ones come first.
  constexpr Name names[] = {
      {"NVFP4", Family::nvfp4},    {"MXFP4", Family::mxfp4},   {"MXFP8", Family::mxfp8},
      {"W4A16_AWQ", Family::int4}, {"W4A8_AWQ", Family::int4}, {"INT4", Family::int4},
      {"W8A8_SQ", Family::int8},   {"W8A16", Family::int8},    {"INT8", Family::int8},
      {"FP8", Family::fp8},
  };
  for (const Name& name : names) {
    if (algorithm.find(name.text) != std::string::npos) return name.family;
  }
  return Family::none;
}

// Algorithms whose names tell which weights share a scale; FP8 itself has had one a tensor and one
// a row.
bool granularity_fits(const std::string& algorithm, Family family, const Module& module) {
  if (!module.scheme.scale) return true;
  const Granularity& grid = module.scheme.scale->granularity;
  const bool rows = grid == Granularity{1, 0} || module.n == 1;
  switch (family) {
    case Family::fp8:
      if (algorithm.find("PER_CHANNEL") != std::string::npos) return rows;
      if (algorithm.find("_PB") == std::string::npos) return true;
      return (grid.rows > 1 && grid.cols > 1) ||
             (module.n <= usual_block.rows && module.k <= usual_block.cols);
    case Family::mxfp8:
      return grid == Granularity{1, 32};
    case Family::int8:
      return rows;
    default:
      return true;
  }
}

}  // namespace

ModeloptFormat modelopt_format(const Draft& draft, const std::string& algorithm) {
  const TensorInfo* weight = draft.tensor("weight");
  const TensorInfo* scale = draft.tensor("weight_scale");
  if (weight == nullptr) return ModeloptFormat::scales_only;
  if (dtype_name(weight->dtype).starts_with("f8_")) return ModeloptFormat::fp8;
  if (!is_byte(weight->dtype)) return ModeloptFormat::none;
  if (scale != nullptr && is_e8m0(scale->dtype)) {
    if (groups_of_32(*weight, *scale, 16)) return ModeloptFormat::mxfp4;
    if (groups_of_32(*weight, *scale, 24)) return ModeloptFormat::mxfp6;
    const bool said = algorithm.find("MXFP4") != std::string::npos;
    if (said && !draft.has("weight_scale_2")) return ModeloptFormat::mxfp4;
  }
  if (scale != nullptr && scale->dtype != DType::f8_e4m3 && scale->shape.size() >= 2 &&
      rows(*scale) % 2 == 0 && rows(*scale) / 2 == rows(*weight)) {
    return ModeloptFormat::int4_awq;
  }
  const bool floats = scale == nullptr || is_16_or_32_bit_float(scale->dtype);
  if (weight->dtype == DType::i8 && floats && !draft.has("weight_scale_2")) {
    return ModeloptFormat::int8;
  }
  return ModeloptFormat::none;
}

void claim_modelopt_format(const Inventory& inventory, Draft& draft, ModeloptFormat format,
                           const std::string& algorithm) {
  Claim claim(inventory, draft);
  switch (format) {
    case ModeloptFormat::mxfp4:
      if (draft.has("input_scale")) claim.set_activation(DType::f8_e4m3);
      claim.run(DType::f4_e2m1, Packing::nibbles_k, 1, 2);
      break;
    case ModeloptFormat::int4_awq:
      if (algorithm.find("W4A8") != std::string::npos) claim.allow_second_scale();
      if (draft.has("weight_scale_2")) claim.set_activation(DType::f8_e4m3);
      claim.run(DType::i4, Packing::nibbles_n, 2, 1);
      break;
    case ModeloptFormat::int8:
      if (draft.has("input_scale")) claim.set_activation(DType::i8);
      claim.run(DType::i8, Packing::none, 1, 1);
      break;
    case ModeloptFormat::mxfp6:
      claim.refuse(DType::f6_e2m3,
                   "6-bit codes (W6A6): whether they are e2m3 or e3m2 stands nowhere in the file");
      break;
    case ModeloptFormat::scales_only:
      claim.refuse(DType::u8, std::string(leftover_scale));
      break;
    case ModeloptFormat::fp8:
    case ModeloptFormat::none:
      break;
  }
}

bool modelopt_algorithm_known(const std::string& algorithm) {
  return algorithm.empty() || algorithm == "MIXED_PRECISION" ||
         family_of(algorithm) != Family::none;
}

bool modelopt_algorithm_fits(const std::string& algorithm, const Module& module) {
  const Family said = family_of(algorithm);
  if (said == Family::none) return true;
  return said == family_of(module.scheme) && granularity_fits(algorithm, said, module);
}

}  // namespace fewbit
