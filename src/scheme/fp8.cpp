// SPDX-License-Identifier: Apache-2.0
// FP8 codes [n, k] with scales beside them: one a tensor, a row, a block or a group. Every producer
// that writes them means the same, so the config only names the producer and settles block sizes.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheme/compressed_tensors_config.hpp"
#include "scheme/fp8_config.hpp"
#include "scheme/fused_experts.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/qkv_rows.hpp"
#include "scheme/reader.hpp"
#include "scheme/scale_fit.hpp"
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

bool is_f8_code(DType dtype) {
  return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 || dtype == DType::f8_e4m3fnuz ||
         dtype == DType::f8_e5m2fnuz;
}

// A part that changes the values and that nothing here applies; empty when there is none.
std::string_view unapplied_part(const Inventory& inventory, const Draft& draft) {
  const std::vector<std::string_view> scales = scale_parts(draft.module);
  for (const Module::Part& part : draft.module.parts) {
    const bool known = is_left_over_zero(inventory, draft, part.suffix) ||
                       std::find(scales.begin(), scales.end(), part.suffix) != scales.end() ||
                       is_activation_suffix(part.suffix) || part.suffix == "weight_amax" ||
                       part.suffix == "pre_quant_scale";
    if (!known && is_quantization_suffix(part.suffix)) return part.suffix;
  }
  return {};
}

Producer producer_of(const Declared& declared) {
  const Declaration* first = declared.first();
  if (first == nullptr) return Producer::fp8;
  switch (first->producer) {
    case Producer::modelopt:
    case Producer::compressed_tensors:
    case Producer::quark:
    case Producer::auto_round:
      return first->producer;
    default:
      return Producer::fp8;
  }
}

// The type of the scales, where stored bytes stand for e8m0: beside groups of 32 along k, as in
// MXFP8, or where the config says ue8m0.
std::optional<DType> scale_dtype(DType stored, const Granularity& granularity,
                                 const std::optional<Fp8Config>& config) {
  switch (stored) {
    case DType::f32:
    case DType::bf16:
    case DType::f16:
    case DType::f8_e8m0:
      return stored;
    case DType::u8:
      if (granularity == Granularity{1, 32}) return DType::f8_e8m0;
      if (config && config->scale_format == "ue8m0") return DType::f8_e8m0;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

class Claim {
 public:
  Claim(const Inventory& inventory, const std::optional<Fp8Config>& config,
        const std::optional<Granularity>& block, Draft& draft)
      : inventory_(inventory),
        config_(config),
        block_(block),
        draft_(draft),
        weight_(*draft.tensor("weight")) {
    scheme_.producer = producer_of(inventory.declared);
    scheme_.weight = weight_.dtype;
  }

  void run() {
    set_sizes();
    set_activation();
    std::string obstacle = find_obstacle();
    if (obstacle.empty()) {
      draft_.claim(scheme_);
    } else {
      draft_.refuse(scheme_, std::move(obstacle));
    }
  }

 private:
  void set_sizes() {
    const Shape& shape = weight_.shape;
    Module& module = draft_.module;
    if (shape.size() < 2) return;
    module.n = shape[shape.size() - 2];
    module.k = shape.back();
    if (shape.size() == 3) module.experts = shape[0];
  }

  void set_activation() {
    const auto& parts = draft_.module.parts;
    const bool stored = std::any_of(parts.begin(), parts.end(), [](const Module::Part& part) {
      return is_activation_scale(part.suffix);
    });
    if (stored || (config_ && !config_->activation.empty())) scheme_.activation = weight_.dtype;
    scheme_.pre_quant_scale = draft_.has("pre_quant_scale");
  }

  std::string find_obstacle() {
    const Module& module = draft_.module;
    const std::string shape = shape_text(weight_.shape);
    const bool no_experts = weight_.shape.size() == 3 && module.experts < 1;
    if (module.n < 1 || module.k < 1 || no_experts || weight_.shape.size() > 3) {
      return fmt::format("FP8 codes of shape {}, expected [rows, columns]", shape);
    }
    if (module.experts > 0 && module.expert != all_experts) {
      return fmt::format("weight of shape {} in a module that does not hold all experts", shape);
    }
    if (module.experts > 0) {
      std::string order = set_order();
      if (!order.empty()) return order;
    }
    if (const std::string_view part = unapplied_part(inventory_, draft_); !part.empty()) {
      return fmt::format("{} beside FP8 codes: what it does to the weights is not known", part);
    }
    if (config_ && !config_->scale_semantics.empty()) {
      return fmt::format(
          "{} says weight_scale_semantics \"{}\": whether scales multiply or divide "
          "is left open",
          config_->where, config_->scale_semantics);
    }
    return read_scale();
  }

  // Which way round all experts in one tensor stand, or why that is not known.
  std::string set_order() {
    Module& module = draft_.module;
    FusedOrder order = fused_order(inventory_, module, weight_.shape);
    if (!order.obstacle.empty()) return std::move(order.obstacle);
    if (order.alternating) return "gate and up rows in turn of codes are not readable";
    module.transposed = order.transposed;
    if (order.transposed) std::swap(module.n, module.k);
    return "";
  }

  std::string misfit(std::string_view name, const TensorInfo& scale,
                     const ScaledMatrix& matrix) const {
    const std::string found = fmt::format("{} of shape {}", name, shape_text(scale.shape));
    const std::string weight = shape_text(weight_.shape);
    const bool square = matrix.n == matrix.k && matrix.k > 1;
    if (square && scale.shape.size() >= 2 && scale.shape.back() == matrix.k) {
      return fmt::format(
          "{} for a square weight of {}: whether it is one a row or a column is not to be seen, "
          "expected [{}, 1] for one a row",
          found, weight, matrix.n);
    }
    const bool bytes = scale.dtype == DType::u8 || scale.dtype == DType::f8_e8m0;
    const std::string groups = group_scales_text(matrix.experts, matrix.n, matrix.k, 32);
    return fmt::format("{} for a weight of {}, expected {}{}", found, weight,
                       scale_shapes_text(matrix, block_),
                       bytes ? " or a group of 32 (" + groups + ")" : "");
  }

  // Sets the scheme's scale, or says why it can't.
  std::string read_scale() {
    const Module& module = draft_.module;
    const std::vector<std::string_view> names = scale_parts(module);
    if (names.empty()) {
      return fmt::format("{} codes without a scale: as they are they are no weights",
                         dtype_name(weight_.dtype));
    }
    if (names.size() > 1) {
      return fmt::format("two scales, {} and {}: which one holds is not known", names[0], names[1]);
    }
    const TensorInfo& scale = *draft_.tensor(names[0]);
    const ScaledMatrix matrix{module.experts, module.n, module.k, module.transposed,
                              is_pair(module)};
    auto fit = scale.shape == Shape{3} && is_fused_qkv(module)
                   ? fit_qkv()
                   : fit_scale(matrix, scale.shape, block_);
    if (!fit) return misfit(names[0], scale, matrix);
    // A row of at most 32 columns is one group.
    const bool exponents = scale.dtype == DType::u8 || scale.dtype == DType::f8_e8m0;
    if (exponents && module.k <= 32 && fit->granularity == Granularity{1, 0}) {
      fit->granularity = {1, 32};
    }
    const auto dtype = scale_dtype(scale.dtype, fit->granularity, config_);
    if (!dtype) {
      return fmt::format(
          "{} is {}, expected f32, bf16, f16, f8_e8m0, or u8 for powers of two (in "
          "groups of 32, or with scale_fmt ue8m0)",
          names[0], dtype_name(scale.dtype));
    }
    scheme_.scale = ScaleSpec{*dtype, fit->granularity, false, ScaleDirection::multiply};
    return "";
  }

  // A scale each for q, k and v: rows that no two of them share.
  std::optional<ScaleFit> fit_qkv() const {
    const auto rows = inventory_.checkpoint != nullptr
                          ? qkv_rows(*inventory_.checkpoint, draft_.module.n)
                          : std::nullopt;
    if (!rows) return std::nullopt;
    ScaleFit fit;
    fit.granularity = {std::gcd((*rows)[0], (*rows)[1]), 0};
    return fit;
  }

  const Inventory& inventory_;
  const std::optional<Fp8Config>& config_;
  const std::optional<Granularity>& block_;  // as declared
  Draft& draft_;
  const TensorInfo& weight_;
  Scheme scheme_;
};

// The block that the config declares for a module.
class DeclaredBlocks {
 public:
  DeclaredBlocks(const Inventory& inventory, const std::optional<Fp8Config>& config)
      : block_(config ? config->block : std::nullopt),
        groups_(CtConfig::read(inventory.declared, inventory.drafts)) {
    if (!groups_) return;
    const auto& all = groups_->groups();
    odd_ = std::any_of(all.begin(), all.end(), [](const CtGroup& group) {
      return group.weights && group.weights->block && group.weights->block != usual_block;
    });
  }

  std::optional<Granularity> of(const Module& module) const {
    const CtGroup* group = odd_ ? groups_->group_of(module) : nullptr;
    return group != nullptr && group->weights && group->weights->block ? group->weights->block
                                                                       : block_;
  }

 private:
  std::optional<Granularity> block_;
  std::optional<CtConfig> groups_;
  bool odd_ = false;  // the usual one needs no telling
};

}  // namespace

void claim_fp8(Inventory& inventory) {
  const std::optional<Fp8Config> config = read_fp8_config(inventory.declared);
  // With an unknown method not even familiar names are sure, and torchao has names of its own.
  const Declaration* first = inventory.declared.first();
  if (first != nullptr &&
      (first->producer == Producer::unknown || first->producer == Producer::torchao)) {
    return;
  }
  const DeclaredBlocks blocks(inventory, config);
  for (Draft& draft : inventory.drafts) {
    const TensorInfo* weight = draft.tensor("weight");
    if (draft.claimed || weight == nullptr || !is_f8_code(weight->dtype)) continue;
    const std::optional<Granularity> block = blocks.of(draft.module);
    Claim(inventory, config, block, draft).run();
  }
}

}  // namespace fewbit
