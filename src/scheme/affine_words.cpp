// SPDX-License-Identifier: Apache-2.0
#include "scheme/affine_words.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/checked.hpp"
#include "core/float_types.hpp"
#include "scheme/affine_claim.hpp"
#include "scheme/integer_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::string_view own_parts[] = {"weight", "scales", "biases"};

bool is_ours(const Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  return weight != nullptr && weight->dtype == DType::u32 && draft.has("scales") &&
         draft.has("biases");
}

std::optional<DType> type_of(const std::optional<std::int64_t>& bits) {
  switch (bits.value_or(0)) {
    case 1:
      return DType::u1;
    case 2:
      return DType::u2;
    case 3:
      return DType::u3;
    case 4:
      return DType::u4;
    case 5:
      return DType::u5;
    case 6:
      return DType::u6;
    case 8:
      return DType::u8;
    default:
      return std::nullopt;
  }
}

std::string text(const TensorInfo& info) {
  return fmt::format("{} {}", dtype_name(info.dtype), shape_text(info.shape));
}

class Claim {
 public:
  Claim(Draft& draft, const AffineSpec& spec)
      : draft_(draft),
        spec_(spec),
        weight_(*draft.tensor("weight")),
        scales_(*draft.tensor("scales")),
        biases_(*draft.tensor("biases")) {
    scheme_.producer = spec.producer;
    scheme_.packing = Packing::words_row;
    scheme_.weight = type_of(spec_.bits).value_or(DType::u4);
  }

  void run() {
    std::string why = obstacle();
    draft_.refuse(scheme_, std::move(why));
  }

 private:
  std::string obstacle() {
    Module& module = draft_.module;
    if (!type_of(spec_.bits)) {
      return fmt::format("MLX words of {}, expected 1, 2, 3, 4, 5, 6 or 8 bits in {}",
                         spec_.bits ? fmt::format("{} bits", *spec_.bits) : "unknown width",
                         spec_.where);
    }
    const Shape& shape = weight_.shape;
    const bool stacked = shape.size() == 3 && module.expert == all_experts;
    if (shape.size() != 2 && !stacked) {
      return fmt::format("MLX words of shape {}, expected [rows, words]", shape_text(shape));
    }
    module.n = shape[shape.size() - 2];
    if (stacked) module.experts = shape[0];
    const std::string odd = unapplied_text(draft_, "MLX", own_parts);
    return odd.empty() ? read_groups() : odd;
  }

  // Sets k and the groups.
  std::string read_groups() {
    Module& module = draft_.module;
    const auto bits = std::int64_t{*spec_.bits};
    const auto total = checked_mul(weight_.shape.back(), std::int64_t{32});
    Shape grid = weight_.shape;
    grid.back() = scales_.shape.empty() ? 0 : scales_.shape.back();
    const bool whole = total && *total > 0 && *total % bits == 0;
    const std::int64_t k = whole ? *total / bits : 0;
    const bool groups = whole && grid.back() > 0 && k % grid.back() == 0;
    if (!groups || scales_.shape != grid || biases_.shape != grid) return misfit(k);
    const std::int64_t size = k / grid.back();
    if (spec_.group_size && *spec_.group_size != 0 && *spec_.group_size != size) return misfit(k);
    if (!is_16_or_32_bit_float(scales_.dtype) || !is_16_or_32_bit_float(biases_.dtype)) {
      return fmt::format("scales {} and biases {}, expected f16, bf16 or f32", text(scales_),
                         text(biases_));
    }
    module.k = k;
    scheme_.scale = ScaleSpec{scales_.dtype, Granularity{1, size}};
    return other_width(*total, grid.back());
  }

  // A second width that the shapes allow as well as the first.
  std::string other_width(std::int64_t row_bits, std::int64_t groups) const {
    const std::int64_t bits = spec_.other_bits.value_or(*spec_.bits);
    if (bits == *spec_.bits || bits < 1 || row_bits % bits != 0) return "";
    const std::int64_t k = row_bits / bits;
    if (k % groups != 0 || spec_.other_group_size.value_or(k / groups) != k / groups) return "";
    return fmt::format("MLX words of {} bits by {}, of {} by {}, and the shapes fit both",
                       *spec_.bits, spec_.where, bits, spec_.other_where);
  }

  std::string misfit(std::int64_t k) const {
    return fmt::format(
        "weight {} of {} bits ({} columns) with scales {} and biases {}, expected "
        "both [{}, columns / {}]",
        text(weight_), *spec_.bits, k, text(scales_), text(biases_), draft_.module.n,
        spec_.group_size ? std::to_string(*spec_.group_size) : "group size");
  }

  Draft& draft_;
  const AffineSpec& spec_;
  const TensorInfo& weight_;
  const TensorInfo& scales_;
  const TensorInfo& biases_;
  Scheme scheme_;
};

AffineSpec spec_for(const IntegerConfig& config, const std::string& module) {
  const IntegerSpec own = spec_of(config, module);
  const MlxSpec copy = mlx_spec_of(config, module);
  return {Producer::auto_round, own.bits,        own.group_size, config.where, copy.bits,
          copy.group_size,      config.mlx_where};
}

}  // namespace

void claim_affine(Draft& draft, const AffineSpec& spec) { Claim(draft, spec).run(); }

void claim_affine_words(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  if (first == nullptr || first->producer != Producer::auto_round) return;
  const IntegerConfig config = read_auto_round_config(*first);
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !is_ours(draft)) continue;
    claim_affine(draft, spec_for(config, draft.module.name));
  }
}

}  // namespace fewbit
