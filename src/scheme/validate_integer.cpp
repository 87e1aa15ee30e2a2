// SPDX-License-Identifier: Apache-2.0
// Presence, types, shapes and values of GPTQ- and AWQ-like parts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/checked.hpp"
#include "core/float_types.hpp"
#include "scheme/group_index.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/integer_zeros.hpp"
#include "scheme/scale_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

std::string text(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape_text(shape));
}

// One module and the layout that its parts must have.
class IntegerModule {
 public:
  IntegerModule(Validation& validation, const Module& module, IntegerShapes shapes)
      : validation_(validation),
        module_(module),
        fit_(integer_fit_of(module.scheme, module.n, module.k)),
        shapes_(std::move(shapes)) {}

  void validate() {
    const TensorInfo* qweight = part("qweight");
    if (qweight == nullptr) return;
    check_part(*qweight, {"weight-dtype", "weight-shape"}, shapes_.qweight_dtype, shapes_.qweight);
    // Shorts hold four rows by turns, 64 columns of each.
    const bool fast = fit_.packing == Packing::shorts_gemv;
    if (fast && (fit_.n % 4 != 0 || fit_.k % 64 != 0)) {
      add(Level::error, "weight-shape", qweight->name, fmt::format("[{}, {}]", fit_.n, fit_.k),
          "rows in a multiple of 4, columns in one of 64");
    }
    validate_scales();
    validate_zeros();
    validate_group_index();
  }

 private:
  const TensorInfo* part(const char* suffix) const {
    return validation_.checkpoint.find(module_.part(suffix));
  }
  bool reads_values() const { return validation_.depth != Depth::headers; }
  void add(Level level, std::string rule, const std::string& where, std::string found,
           std::string expected, double magnitude = 0) {
    validation_.add(module_, level, std::move(rule), where, std::move(found), std::move(expected),
                    magnitude);
  }

  struct PartRules {
    const char* dtype;
    const char* shape;
  };
  bool check_part(const TensorInfo& info, PartRules rules, DType dtype, const Shape& shape) {
    const std::string found = text(info.dtype, info.shape);
    if (info.dtype != dtype) add(Level::error, rules.dtype, info.name, found, text(dtype, shape));
    if (info.shape != shape) add(Level::error, rules.shape, info.name, found, text(dtype, shape));
    return info.dtype == dtype && info.shape == shape;
  }

  void validate_scales() {
    const TensorInfo* scales = part("scales");
    if (scales == nullptr) {
      add(Level::error, "scale-missing", module_.name + ".scales",
          "codes without scales: " + module_.evidence, text(DType::f16, shapes_.scales));
      return;
    }
    const DType dtype = is_16_or_32_bit_float(scales->dtype) ? scales->dtype : DType::f16;
    check_part(*scales, {"scale-dtype", "scale-shape"}, dtype, shapes_.scales);
  }

  void validate_zeros() {
    const TensorInfo* zeros = part("qzeros");
    const bool needed = module_.scheme.zero_points || fit_.packing == Packing::shorts_gemv;
    if (zeros == nullptr) {
      if (!needed) return;
      add(Level::error, "zeros-missing", module_.name + ".qzeros",
          "asymmetric codes without zero points: " + module_.evidence,
          text(shapes_.qzeros_dtype, shapes_.qzeros));
      return;
    }
    if (!needed && zeros->bytes == 0) return;
    const bool fits =
        check_part(*zeros, {"zeros-dtype", "zeros-shape"}, shapes_.qzeros_dtype, shapes_.qzeros);
    if (!fits || !reads_values()) return;
    if (fit_.packing == Packing::words_k) validate_zero_fields(*zeros);
    if (fit_.packing == Packing::shorts_gemv) validate_offsets(*zeros);
  }

  std::optional<ScaleCounts> count(const TensorInfo& info) const {
    const auto counts =
        count_scale_values(info.dtype, validation_.checkpoint.tensor(info).view.bytes);
    validation_.checkpoint.release(info);
    return counts;
  }

  // Zero points of 0 to 15 times minus their scale.
  void validate_offsets(const TensorInfo& info) {
    const auto offsets = count(info);
    const TensorInfo* scales = part("scales");
    if (!offsets || scales == nullptr) return;
    if (offsets->not_finite > 0) {
      add(Level::error, "zeros-value", info.name,
          fmt::format("{} of {} are NaN or infinite", offsets->not_finite, offsets->values),
          "zero points times minus their scale", double(offsets->not_finite));
    }
    const auto factors = count(*scales);
    if (!factors || !factors->has_number() || !offsets->has_number()) return;
    // A scale below zero turns its zero point round; 16 leaves room for the rounding of f16.
    const double scale = std::max(std::fabs(factors->smallest), std::fabs(factors->largest));
    const double least = -16 * scale;
    const double most = factors->negative > 0 ? 16 * scale : 0;
    if (offsets->smallest >= least && offsets->largest <= most) return;
    add(Level::warning, "zeros-value", info.name,
        fmt::format("{:g} to {:g}", offsets->smallest, offsets->largest),
        fmt::format("{:g} to {:g}: zero points times minus scales of at most {:g}", least, most,
                    scale),
        std::max(std::fabs(offsets->smallest), std::fabs(offsets->largest)));
  }

  void validate_zero_fields(const TensorInfo& info) {
    const Tensor tensor = validation_.checkpoint.tensor(info);
    const ZeroFields fields = count_zero_fields(tensor.view, fit_.n, fit_.bits);
    validation_.checkpoint.release(info);
    const bool minus = module_.scheme.packing == Packing::words_k_minus;
    const int middle = 1 << (fit_.bits - 1);
    if (minus ? fields.symmetric_minus() : fields.symmetric_as_is()) return;
    if (minus ? fields.symmetric_as_is() : fields.symmetric_minus()) {
      add(Level::warning, "zeros-convention", info.name,
          fmt::format("words 0x{:08x}: symmetric zero points stored {}", fields.first_word,
                      minus ? "as they are" : "one too small"),
          fmt::format("{} for a zero point of {}, as the config says", minus ? middle - 1 : middle,
                      middle));
      return;
    }
    if (!module_.scheme.zero_points) {
      report_not_symmetric(info, fields, minus ? fields.below : fields.middle, middle);
    } else if (minus && fields.all_ones > 0) {
      add(Level::warning, "zeros-wrap", info.name,
          fmt::format("{} of {} zero points are stored as {}", fields.all_ones, fields.count,
                      2 * middle - 1),
          fmt::format("zero points of 1 or more: plus one, it is 0 here and {} to readers that do "
                      "not wrap",
                      2 * middle),
          double(fields.all_ones));
    }
  }

  void report_not_symmetric(const TensorInfo& info, const ZeroFields& fields,
                            std::int64_t as_stated, int middle) {
    if (fields.zero == fields.count) {
      add(Level::info, "zeros-unused", info.name, "only zeros",
          fmt::format("nothing: symmetric codes have the zero point {}", middle));
      return;
    }
    add(Level::error, "zeros-not-symmetric", info.name,
        fmt::format("{} of {} zero points are not {}", fields.count - as_stated, fields.count,
                    middle),
        fmt::format("{} everywhere, as the config says sym", middle),
        double(fields.count - as_stated));
  }

  void validate_group_index() {
    const TensorInfo* g_idx = part("g_idx");
    if (g_idx == nullptr) return;
    const bool fits =
        check_part(*g_idx, {"group-index-dtype", "group-index-shape"}, DType::i32, shapes_.g_idx);
    if (fit_.k * fit_.bits % 32 != 0) {
      add(Level::warning, "group-index-shape", g_idx->name, fmt::format("{} columns", fit_.k),
          fmt::format("{}, as the words hold", shapes_.qweight[0] * 32 / fit_.bits));
    }
    if (!fits || !reads_values()) return;
    const GroupIndex index =
        read_group_index(validation_.checkpoint.tensor(*g_idx).view, fit_.group_size);
    validation_.checkpoint.release(*g_idx);
    const std::int64_t groups = fit_.group_size <= 0 ? 1 : ceil_div(fit_.k, fit_.group_size);
    if (index.bad_column >= 0) {
      add(Level::error, "group-index-range", g_idx->name,
          fmt::format("column {} is in group {}", index.bad_column, index.bad_value),
          fmt::format("groups 0 to {}", groups - 1));
    } else if (index.uneven_group >= 0) {
      add(Level::error, "group-index-uneven", g_idx->name,
          fmt::format("group {} has {} columns", index.uneven_group, index.uneven_count),
          fmt::format("{}: {} columns in groups of {}", index.uneven_expected, fit_.k,
                      fit_.group_size));
    }
  }

  Validation& validation_;
  const Module& module_;
  IntegerFit fit_;
  IntegerShapes shapes_;
};

}  // namespace

void validate_integer(Validation& validation, const Module& module) {
  auto shapes = integer_shapes(integer_fit_of(module.scheme, module.n, module.k));
  if (!shapes) {
    validation.add(module, Level::error, "weight-shape", std::string(module.part("qweight")),
                   module.evidence, "a matrix of words, at least [1, 1]");
    return;
  }
  IntegerModule(validation, module, *std::move(shapes)).validate();
}

}  // namespace fewbit
