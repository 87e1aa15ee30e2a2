// SPDX-License-Identifier: Apache-2.0
#include "scheme/fp4.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/checked.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/scale_fit.hpp"

namespace fewbit {
namespace {

constexpr std::string_view code_names[] = {"weight", "weight_packed", "packed", "blocks"};
constexpr std::string_view scale_names[] = {"weight_scale", "scale", "scales"};
constexpr std::string_view factor_names[] = {"weight_scale_2"};
constexpr std::string_view divisor_names[] = {"weight_global_scale", "global_scale"};
// What only repeats what the codes say.
constexpr std::string_view repeated_names[] = {"weight_amax", "weight_shape"};

template <std::size_t count>
std::string_view first_part(const Module& module, const std::string_view (&names)[count]) {
  for (const std::string_view name : names) {
    if (!module.part(name).empty()) return name;
  }
  return {};
}

template <std::size_t count>
bool one_of(std::string_view text, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

bool is_byte(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

std::string text(const TensorInfo& info) {
  return fmt::format("{} {}", dtype_name(info.dtype), shape_text(info.shape));
}

// Sizes of one order of the dimensions.
struct Fit {
  bool transposed = false;
  std::int64_t experts = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t groups = 0;  // of a row
};

// Codes [.., n, k/2] (blocks: [.., n, k/32, 16]) with scales [.., n, groups].
std::optional<Fit> fit_rows(Shape codes, const Shape& scale, bool blocks) {
  if (blocks) {
    if (codes.size() < 3 || codes.back() != 16) return std::nullopt;
    codes.pop_back();
  }
  if (codes.size() < 2 || codes.size() > 3 || scale.size() != codes.size()) return std::nullopt;
  Fit fit;
  if (codes.size() == 3) fit.experts = codes[0];
  if (!std::equal(codes.begin(), codes.end() - 1, scale.begin())) return std::nullopt;
  fit.n = codes[codes.size() - 2];
  fit.k = checked_mul(codes.back(), std::int64_t{blocks ? 32 : 2}).value_or(0);
  fit.groups = scale.back();
  return fit;
}

// Codes [experts, k/2, n] with scales [experts, groups, n].
std::optional<Fit> fit_columns(const Shape& codes, const Shape& scale) {
  if (codes.size() != 3 || scale.size() != 3) return std::nullopt;
  if (codes[0] != scale[0] || codes[2] != scale[2]) return std::nullopt;
  return Fit{true, codes[0], codes[2], checked_mul(codes[1], std::int64_t{2}).value_or(0),
             scale[1]};
}

class Claim {
 public:
  Claim(const Inventory& inventory, Draft& draft, Producer producer)
      : inventory_(inventory), draft_(draft), parts_(fp4_parts(draft.module)) {
    scheme_.producer = producer;
    scheme_.weight = DType::f4_e2m1;
    scheme_.packing = parts_.codes == "blocks" ? Packing::blocks : Packing::nibbles_k;
  }

  void run(std::optional<DType> activation) {
    scheme_.activation = activation;
    std::string obstacle = find_obstacle();
    if (obstacle.empty()) {
      draft_.claim(scheme_);
    } else {
      draft_.refuse(scheme_, std::move(obstacle));
    }
  }

 private:
  std::string find_obstacle() {
    const TensorInfo* codes = draft_.tensor(parts_.codes);
    if (codes == nullptr) return std::string(leftover_scale);
    if (!is_byte(codes->dtype)) {
      return fmt::format("{} is {}, expected u8 or i8 (two codes a byte)", parts_.codes,
                         dtype_name(codes->dtype));
    }
    const TensorInfo* scale = draft_.tensor(parts_.scale);
    if (scale == nullptr) return fmt::format("{} {} without a scale", parts_.codes, text(*codes));
    if (std::string_view part = unapplied_part(); !part.empty()) {
      return fmt::format("{} beside 4-bit codes: what it does to the weights is not known", part);
    }
    return fit(*codes, *scale);
  }

  // A part that could change the values and that nothing here applies.
  std::string_view unapplied_part() const {
    for (const Module::Part& part : draft_.module.parts) {
      const bool known = part.suffix == parts_.codes || part.suffix == parts_.scale ||
                         part.suffix == parts_.global || one_of(part.suffix, repeated_names) ||
                         is_activation_suffix(part.suffix) ||
                         is_left_over_zero(inventory_, draft_, part.suffix);
      if (!known && is_quantization_suffix(part.suffix)) return part.suffix;
    }
    return {};
  }

  std::string fit(const TensorInfo& codes, const TensorInfo& scale) {
    const auto rows = fit_rows(codes.shape, scale.shape, scheme_.packing == Packing::blocks);
    const auto columns =
        scheme_.packing == Packing::blocks ? std::nullopt : fit_columns(codes.shape, scale.shape);
    const auto rows_scale = rows ? scale_of(*rows, scale) : std::nullopt;
    const auto columns_scale = columns ? scale_of(*columns, scale) : std::nullopt;
    if (!rows_scale && !columns_scale) return misfit(codes, scale);
    const bool both = rows_scale && columns_scale;
    const bool transposed = both ? hidden_size_is_behind() : columns_scale.has_value();
    set_sizes(transposed ? *columns : *rows);
    scheme_.scale = transposed ? *columns_scale : *rows_scale;
    return find_odd(codes);
  }

  // The scale that so many groups of that type mean; empty when none does.
  std::optional<ScaleSpec> scale_of(const Fit& fit, const TensorInfo& scale) const {
    if (fit.n < 1 || fit.k < 2) return std::nullopt;
    const bool of_16 = fit.groups == ceil_div(fit.k, std::int64_t{16});
    const bool of_32 = fit.groups == ceil_div(fit.k, std::int64_t{32});
    const bool global = !parts_.global.empty();
    if (scale.dtype == DType::f8_e4m3 && of_16) {
      const auto direction = parts_.divisor ? ScaleDirection::divide : ScaleDirection::multiply;
      return ScaleSpec{DType::f8_e4m3, {1, 16}, true, direction};
    }
    const bool byte = scale.dtype == DType::u8 || scale.dtype == DType::f8_e8m0;
    if (byte && of_32 && !global) return ScaleSpec{DType::f8_e8m0, {1, 32}};
    // Without a second factor, bytes for groups of 16 are auto-round's e5m3.
    const bool auto_round = parts_.codes == "weight_packed";
    if (scale.dtype == DType::u8 && of_16 && !global && auto_round) {
      return ScaleSpec{DType::f8_e5m3, {1, 16}};
    }
    return std::nullopt;
  }

  std::string misfit(const TensorInfo& codes, const TensorInfo& scale) const {
    return fmt::format(
        "{} {} with {} {}{}, expected e4m3 a group of 16{} with a second factor, or bytes (e8m0) a "
        "group of 32{}",
        parts_.codes, text(codes), parts_.scale, text(scale),
        parts_.global.empty() ? std::string() : fmt::format(" and {}", parts_.global),
        count_text(codes.shape, scale.shape, 16), count_text(codes.shape, scale.shape, 32));
  }

  // How many scales such groups need; nothing of shapes that are no rows of codes.
  std::string count_text(Shape codes, const Shape& scale, std::int64_t size) const {
    const bool blocks = scheme_.packing == Packing::blocks;
    if (!fit_rows(codes, scale, blocks) && fit_columns(codes, scale)) return "";
    if (blocks && !codes.empty()) codes.pop_back();
    if (codes.size() < 2 || codes.size() > 3) return "";
    const auto k = checked_mul(codes.back(), std::int64_t{blocks ? 32 : 2});
    const std::int64_t experts = codes.size() == 3 ? codes[0] : 0;
    const std::int64_t n = codes[codes.size() - 2];
    return k ? fmt::format(" ({})", group_scales_text(experts, n, *k, size)) : "";
  }

  // Of [experts, a, b] with both orders possible: whether rows run along the last dimension.
  bool hidden_size_is_behind() const {
    const TensorInfo& codes = *draft_.tensor(parts_.codes);
    if (!inventory_.hidden_size) return false;
    const std::int64_t hidden = *inventory_.hidden_size;
    return draft_.module.role == Role::down_proj ? codes.shape[2] == hidden
                                                 : codes.shape[1] == hidden / 2;
  }

  void set_sizes(const Fit& fit) {
    Module& module = draft_.module;
    module.n = fit.n;
    module.k = fit.k;
    module.experts = fit.experts;
    module.transposed = fit.transposed;
    // gpt-oss's own files, and what ModelOpt makes of them as a whole.
    const bool gpt_oss = scheme_.packing == Packing::blocks || is_gpt_oss();
    module.alternating = gpt_oss && fit.experts > 0 && module.role == Role::gate_up_proj;
  }

  bool is_gpt_oss() const { return inventory_.model_type == "gpt_oss"; }

  std::string find_odd(const TensorInfo& codes) const {
    const Module& module = draft_.module;
    const bool others =
        scheme_.producer != Producer::mxfp4 && scheme_.producer != Producer::modelopt;
    if (module.alternating && others) {
      return "fused gate and up of gpt-oss from a producer of which it is not known whether their "
             "rows stand in turn";
    }
    if (module.experts > 0 && module.expert != all_experts && module.role != Role::other) {
      return fmt::format("{} of shape {} in a module that does not hold all experts", parts_.codes,
                         shape_text(codes.shape));
    }
    if (scheme_.scale->has_global && parts_.global.empty()) {
      return fmt::format(
          "e4m3 scales of NVFP4 without a second factor (weight_scale_2 or "
          "weight_global_scale) beside {}",
          parts_.codes);
    }
    return "";
  }

  const Inventory& inventory_;
  Draft& draft_;
  Fp4Parts parts_;
  Scheme scheme_;
};

}  // namespace

Fp4Parts fp4_parts(const Module& module) {
  Fp4Parts parts;
  parts.codes = first_part(module, code_names);
  parts.scale = first_part(module, scale_names);
  parts.global = first_part(module, factor_names);
  if (!parts.global.empty()) return parts;
  parts.global = first_part(module, divisor_names);
  parts.divisor = !parts.global.empty();
  return parts;
}

void claim_fp4(const Inventory& inventory, Draft& draft, Producer producer,
               std::optional<DType> activation) {
  Claim(inventory, draft, producer).run(activation);
}

}  // namespace fewbit
