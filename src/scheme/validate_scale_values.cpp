// SPDX-License-Identifier: Apache-2.0
// Values of scales, whoever wrote them: no NaN, nothing erased, plausible sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/checked.hpp"
#include "scheme/affine_words.hpp"
#include "scheme/bitsandbytes_state.hpp"
#include "scheme/largest_weight.hpp"
#include "scheme/scale_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// No matrix has its largest weight below this: its scale is upside down.
constexpr double vanishing_weight = 1e-12;

constexpr std::string_view scale_names[] = {"weight_scale", "weight_scale_inv", "scale",
                                            "scales",       "scale_inv",        "scales_inv",
                                            "wscales",      "qscale_weight",    "weight.scale"};
constexpr std::string_view global_names[] = {"weight_scale_2", "weight_global_scale"};

bool one_of(std::string_view suffix, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), suffix) != names.end();
}

// What the bytes of a scale mean: exponents stand in u8 where there is no type for them.
DType meaning(const Module& module, const TensorInfo& info) {
  const bool byte = info.dtype == DType::u8 || info.dtype == DType::i8;
  if (!byte || !module.scheme.scale) return info.dtype;
  const DType scale = module.scheme.scale->dtype;
  return dtype_bits(scale) == 8 ? scale : info.dtype;
}

double largest_code(const Scheme& scheme) {
  switch (scheme.weight) {
    case DType::f4_e2m1:
      return 6;
    case DType::f8_e4m3:
      return 448;
    case DType::f8_e4m3fnuz:
      return 240;
    case DType::f8_e5m2:
    case DType::f8_e5m2fnuz:
      return 57344;
    case DType::i4:
      // Quarters of mx_int4.
      if (scheme.scale && scheme.scale->dtype == DType::f8_e8m0) return 1.75;
      return 8;
    case DType::nf3:
    case DType::nf4:
      return 1;
    default: {
      // Integers: away from the middle, or from a zero point at either end.
      const double codes = std::exp2(dtype_bits(scheme.weight));
      return scheme.zero_points ? codes - 1 : codes / 2;
    }
  }
}

std::int64_t product(std::int64_t a, std::int64_t b) { return checked_mul(a, b).value_or(0); }
std::int64_t parts(std::int64_t size, std::int64_t each) {
  return each > 0 && size > 0 ? ceil_div(size, each) : 1;
}

// Scales that the matrix has; a file may hold more, as padding of zeros. 0: unknown.
std::uint64_t scales_needed(const Module& module) {
  if (!module.scheme.scale || module.n < 1 || module.k < 1) return 0;
  const Granularity grid = module.scheme.scale->granularity;
  const std::int64_t one = product(parts(module.n, grid.rows), parts(module.k, grid.cols));
  return static_cast<std::uint64_t>(product(one, std::max<std::int64_t>(module.experts, 1)));
}

std::uint64_t weights_a_scale(const Module& module, std::uint64_t scales) {
  const std::int64_t all =
      product(product(module.n, module.k), std::max<std::int64_t>(module.experts, 1));
  return scales > 0 ? static_cast<std::uint64_t>(all) / scales : 0;
}

// AutoRound lets the scale of symmetric integers be negative, so that the largest weight has the
// lowest code; MLX's affine one has the sign that makes the largest weight exact.
Level negative_level(const Scheme& scheme, bool auto_round) {
  if (is_affine_words(scheme)) return Level::info;
  const bool floats = dtype_name(scheme.weight).starts_with("f");
  auto_round = auto_round || scheme.producer == Producer::auto_round;
  const bool usual = auto_round && !scheme.zero_points && !floats;
  return usual ? Level::info : Level::warning;
}

class ModuleScales {
 public:
  ModuleScales(Validation& validation, const Module& module)
      : validation_(validation),
        module_(module),
        global_known_(!module.scheme.scale || !module.scheme.scale->has_global) {}

  void run() {
    if (module_.scheme.producer == Producer::bitsandbytes) {
      if (module_.unreadable.empty()) check_bitsandbytes();
    } else {
      check_parts();
    }
    check_size();
    check_pre_quant_scale();
  }

 private:
  // BitNet's only scale is a divisor of the whole matrix.
  bool is_global(std::string_view suffix) const {
    return one_of(suffix, global_names) ||
           (module_.scheme.producer == Producer::ternary && suffix == "weight_scale");
  }

  void check_parts() {
    std::string_view first;
    for (const Module::Part& part : module_.parts) {
      const bool global = is_global(part.suffix);
      if (!global && !one_of(part.suffix, scale_names)) continue;
      const TensorInfo* info = validation_.checkpoint.find(part.tensor);
      if (info == nullptr || info->blocks) continue;
      if (!global && !first.empty() && module_.unreadable.empty()) {
        add(Level::error, "scale-twice", *info, fmt::format("{} beside {}", part.suffix, first),
            "one scale a weight: only one of them is applied");
      }
      if (!global) first = part.suffix;
      if (!global) scale_type_ = meaning(module_, *info);
      const auto counts = count(*info);
      if (!counts || counts->values == 0) continue;
      if (global) {
        check_global(*info, *counts);
      } else {
        check_scales(*info, *counts);
      }
    }
  }

  // Scales as they are computed from absmax and the tensors of its own coding, or from SCB.
  void check_bitsandbytes() {
    const bool blocks = module_.scheme.weight == DType::nf4;
    const TensorInfo* info =
        validation_.checkpoint.find(module_.part(blocks ? "weight.absmax" : "SCB"));
    const auto scales = blocks ? block_scales() : row_scales();
    if (info == nullptr || scales.empty()) return;
    const auto counts = count_scale_values(DType::f32, std::as_bytes(std::span(scales)));
    if (counts) check_scales(*info, *counts);
  }

  std::vector<float> block_scales() const {
    const auto state = read_bitsandbytes_state(validation_.checkpoint, module_);
    if (!state) return {};
    auto scales = bitsandbytes_block_scales(validation_.checkpoint, module_, *state);
    return scales ? *std::move(scales) : std::vector<float>();
  }

  std::vector<float> row_scales() const {
    auto scales = bitsandbytes_row_scales(validation_.checkpoint, module_);
    return scales ? *std::move(scales) : std::vector<float>();
  }

  std::optional<ScaleCounts> count(const TensorInfo& info) {
    const Tensor tensor = validation_.checkpoint.tensor(info);
    const auto counts = count_scale_values(meaning(module_, info), tensor.view.bytes);
    validation_.checkpoint.release(info);
    return counts;
  }

  void add(Level level, const char* rule, const TensorInfo& info, std::string found,
           std::string expected, double magnitude = 0) {
    validation_.add(module_, level, rule, info.name, std::move(found), std::move(expected),
                    magnitude);
  }

  void check_scales(const TensorInfo& info, const ScaleCounts& counts) {
    const auto report = [&](Level level, const char* rule, std::uint64_t count,
                            const std::string& what) {
      if (count == 0) return;
      add(level, rule, info, fmt::format("{} of {} scales are {}", count, counts.values, what),
          "finite scales above zero", double(count));
    };
    const bool exponents = meaning(module_, info) == DType::f8_e8m0;
    report(Level::error, "scale-nan", counts.not_finite,
           exponents ? "NaN (255)" : "NaN or infinite");
    report(negative_level(module_.scheme, validation_.auto_round), "scale-negative",
           counts.negative, "negative");
    const std::uint64_t needed = scales_needed(module_);
    const std::uint64_t used = needed > 0 ? std::min(needed, counts.values) : counts.values;
    const std::uint64_t zero = counts.zero - std::min(counts.zero, counts.values - used);
    const std::uint64_t erased = zero * weights_a_scale(module_, used);
    report(Level::warning, "scale-zero", zero,
           erased > 0 ? fmt::format("zero, {} weights erased", erased) : "zero");
    if (dtype_bits(info.dtype) > 8) check_exponents(info, counts);
    if (counts.has_number()) {
      numbers_ = true;
      largest_ = std::max({largest_, double(counts.largest), -double(counts.smallest)});
    }
    if (module_.experts > 1) keep_experts(info, per_expert_);
    seen_ = true;
  }

  // 120 stored as 120.0: the exponent byte of 2^-7 copied as a number.
  void check_exponents(const TensorInfo& info, const ScaleCounts& counts) {
    if (counts.whole != counts.values || counts.largest < 64.0F) return;
    exponents_ = true;
    add(Level::warning, "scale-exponents", info,
        fmt::format("{} scales, all whole numbers from {:g} to {:g}", counts.values,
                    counts.smallest, counts.largest),
        "scales; these look like exponents that were copied as numbers, 120 for 2^-7",
        double(counts.largest));
  }

  void check_global(const TensorInfo& info, const ScaleCounts& counts) {
    global_known_ = false;  // until it is seen that there is nothing wrong with it
    const float value = counts.has_number() ? counts.smallest : std::nanf("");
    const bool ternary = module_.scheme.producer == Producer::ternary;
    divides_ = ternary || (module_.scheme.scale &&
                           module_.scheme.scale->global_direction == ScaleDirection::divide);
    if (module_.experts > 1) keep_experts(info, per_expert_global_);
    if (counts.not_finite > 0 || counts.negative > 0) {
      add(Level::error, "global-scale-value", info,
          counts.not_finite > 0
              ? fmt::format("{} of {} are nan or inf", counts.not_finite, counts.values)
              : fmt::format("{:g}", value),
          "a finite number above zero");
      return;
    }
    if (counts.zero > 0 && divides_) {
      add(Level::error, "global-scale-value", info, fmt::format("{:g}", value),
          "a finite number above zero: scales are divided by it");
      return;
    }
    // A matrix of zeros may have a zero scale: it does no harm.
    if (counts.zero > 0) {
      add(Level::warning, "global-scale-zero", info, fmt::format("{:g}", value),
          "a finite number above zero");
      return;
    }
    global_known_ = true;
    global_ = divides_ ? 1.0 / double(counts.smallest) : double(counts.largest);
    global_info_ = &info;
    if (ternary) {
      largest_ = 1;
      seen_ = true;
    }
  }

  // The largest scale of each expert of a tensor that holds them all, one after another; NaN where
  // an expert has no number.
  void keep_experts(const TensorInfo& info, std::vector<double>& out) {
    const auto experts = static_cast<std::size_t>(module_.experts);
    const Tensor tensor = validation_.checkpoint.tensor(info);
    const std::size_t bytes = tensor.view.bytes.size() / experts;
    if (bytes == 0 || tensor.view.bytes.size() % experts != 0) return;
    out.clear();
    for (std::size_t e = 0; e < experts; ++e) {
      const auto counts =
          count_scale_values(meaning(module_, info), tensor.view.bytes.subspan(e * bytes, bytes));
      if (!counts) return out.clear();
      out.push_back(counts->has_number() ? double(counts->largest) : std::nan(""));
    }
    validation_.checkpoint.release(info);
  }

  // The largest weight that codes and scales can make.
  void check_size() {
    // Of codes that are not decoded no weight is known.
    if (!seen_ || exponents_ || !module_.unreadable.empty()) return;
    size_ = largest_ * global_ * largest_code(module_.scheme);
    // The largest code need not stand beside the largest scale: what f32 holds is no error.
    if (size_ > double(std::numeric_limits<float>::max())) {
      size_ = largest_stored_weight(validation_.checkpoint, module_, scale_type_, global_)
                  .value_or(size_);
    }
    // A scale of 1 everywhere: codes that were rounded without one.
    const bool none = largest_ == 1.0 && global_ == 1.0;
    const bool large = size_ > implausible_weight && !none;
    if (!large && (size_ == 0 || size_ >= vanishing_weight)) return;
    const bool by_global = global_info_ != nullptr && (large ? global_ > 1.0 : global_ < 1.0);
    validation_.add(
        module_, level_of(size_), by_global ? "global-scale-direction" : "scale-direction",
        by_global ? global_info_->name : module_.name,
        fmt::format("weights up to {:g}: scales up to {:g}{}", size_, largest_,
                    global_info_ != nullptr ? fmt::format(", global factor {:g}", global_) : ""),
        expected_size(large, by_global),
        large ? size_ / implausible_weight : vanishing_weight / size_);
  }

  std::string expected_size(bool large, bool by_global) const {
    if (!large) return fmt::format("weights above {:g}", vanishing_weight);
    if (!by_global) return fmt::format("weights below {:g}; is it a divisor?", implausible_weight);
    return fmt::format("weights below {:g}; {:g} would be plausible the other way round",
                       implausible_weight, 1.0 / global_);
  }

  // Decoded weights are f32 at most.
  static Level level_of(double weight) {
    return weight > double(std::numeric_limits<float>::max()) ? Level::error : Level::warning;
  }

  // Weights are multiplied by it where activations are not.
  void check_pre_quant_scale() {
    if (!seen_ || exponents_ || !module_.scheme.pre_quant_scale) return;
    const TensorInfo* info = validation_.checkpoint.find(module_.part("pre_quant_scale"));
    const auto counts = info != nullptr ? count(*info) : std::nullopt;
    if (!counts || !counts->has_number()) return;
    const double weight = size_ * double(counts->largest);
    if (weight <= implausible_weight || size_ > implausible_weight) return;
    add(level_of(weight), "pre-quant-scale-value", *info,
        fmt::format("weights up to {:g}: up to {:g} without it, factors up to {:g}", weight, size_,
                    counts->largest),
        fmt::format("weights below {:g}", implausible_weight), weight);
  }

  Validation& validation_;
  const Module& module_;
  double largest_ = 0;
  double global_ = 1;
  double size_ = 0;  // the largest weight, without pre_quant_scale
  const TensorInfo* global_info_ = nullptr;
  DType scale_type_ = DType::f32;  // what its bytes mean
  bool seen_ = false;
  bool exponents_ = false;
  bool numbers_ = false;  // among the scales
  bool global_known_;     // there is none, or one that can be used

  bool divides_ = false;
  std::vector<double> per_expert_;
  std::vector<double> per_expert_global_;

 public:
  // For comparison with other experts: only what is known to be the size of a weight.
  void keep(ExpertScales& experts, LargestWeights& largest) const {
    if (!seen_ || exponents_ || !module_.unreadable.empty()) return;
    largest.add(module_, size_);
    if (module_.expert >= 0 && global_known_ && numbers_) {
      experts.add(module_, module_.expert, largest_ * global_);
    }
    for (std::size_t e = 0; e < per_expert_.size(); ++e) {
      const double size = per_expert_[e] * factor_of(e);
      if (std::isfinite(size)) experts.add(module_, static_cast<int>(e), size);
    }
  }

 private:
  // NaN where it is none that can be used.
  double factor_of(std::size_t expert) const {
    if (expert >= per_expert_global_.size()) return global_known_ ? global_ : std::nan("");
    const double global = per_expert_global_[expert];
    if (!(global > 0)) return std::nan("");
    return divides_ ? 1.0 / global : global;
  }
};

}  // namespace

void validate_scale_values(Validation& validation, const Module& module, ExpertScales& experts,
                           LargestWeights& largest) {
  if (!module.scheme.quantized() || module.scheme.ggml_type) return;
  ModuleScales scales(validation, module);
  scales.run();
  scales.keep(experts, largest);
}

}  // namespace fewbit
