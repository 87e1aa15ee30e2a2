// SPDX-License-Identifier: Apache-2.0
#include "scheme/auto_round_check.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/quote.hpp"
#include "scheme/affine_words.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/nibble_types.hpp"

namespace fewbit {
namespace {

bool has_e8m0(const Scheme& scheme) {
  return scheme.scale && scheme.scale->dtype == DType::f8_e8m0;
}

bool is_fp8(const Scheme& scheme) { return dtype_name(scheme.weight).starts_with("f8_"); }

std::string by_tensors(const Module& module) {
  return scheme_text(module.scheme) + " by the tensors: " + module.evidence;
}

// "int", "int_sym", "fp8_to_int_sym"; an absent name is "int".
bool names_integers(std::string_view type) {
  return type.empty() || (type.find("int") != std::string_view::npos && !type.starts_with("mx_"));
}

// "fp8", "fp8_e5m2", "mx_fp8e4m3"; "mx_fp" takes its width from `bits`.
bool names_fp8(std::string_view type, const Scheme& scheme) {
  const bool mx = type.starts_with("mx");
  const bool named =
      type.find("fp8") != std::string_view::npos && type.find("int") == std::string_view::npos;
  const bool five = type.find("e5m2") != std::string_view::npos;
  const bool is_five = scheme.weight == DType::f8_e5m2 || scheme.weight == DType::f8_e5m2fnuz;
  if (mx != has_e8m0(scheme) || (five && !is_five)) return false;
  return named || type == "mx_fp" || type == "mx_fp_rceil";
}

bool type_fits(std::string_view type, const Scheme& scheme) {
  if (scheme.weight == DType::i4) return true;  // chosen by it
  if (scheme.weight == DType::f4_e2m1) {
    if (type.empty()) return true;
    return nibble_codes(type) == NibbleCodes::floats && type.starts_with("mx") == has_e8m0(scheme);
  }
  if (is_fp8(scheme)) return type.empty() || names_fp8(type, scheme);
  return names_integers(type);
}

// Whether such a scheme may stand in a format that is known.
bool format_fits(std::string_view format, const Scheme& scheme) {
  const bool compressed = format.find("llm_compressor") != std::string_view::npos;
  const bool e5m3 = scheme.scale && scheme.scale->dtype == DType::f8_e5m3;
  if (e5m3) return format.find("e5m3") != std::string_view::npos;
  if (format.find("e5m3") != std::string_view::npos) return false;
  if (is_affine_format(format)) return is_affine_words(scheme);
  if (is_fp8_format(format)) return is_fp8(scheme) && !has_e8m0(scheme);
  return compressed ? !is_affine_words(scheme) && !is_integer_words(scheme.packing)
                    : is_integer_words(scheme.packing);
}

}  // namespace

std::string sharing_text(const Granularity& of) {
  if (of.rows == 0 && of.cols == 0) return "a scale a tensor";
  if (of.cols == 0) return "a scale a row";
  return of.rows == 1 ? fmt::format("groups of {}", of.cols)
                      : fmt::format("blocks of {}x{}", of.rows, of.cols);
}

bool same_sharing(const Granularity& stated, const Granularity& found, const Module& module) {
  if (stated == found) return true;
  const auto whole_row = [&](const Granularity& of) {
    return of.rows == 1 && (of.cols == 0 || of.cols >= module.k);
  };
  // -1 also stands beside one scale for the whole matrix.
  const bool one = found == Granularity{0, 0};
  return whole_row(stated) && (whole_row(found) || one);
}

bool is_compared_with_config(const Module& module) {
  return is_integer_words(module.scheme.packing) || is_affine_words(module.scheme) ||
         (module.scheme.producer == Producer::auto_round && module.scheme.scale);
}

void check_auto_round_type(const IntegerConfig& config, const Module& module,
                           FindingGroups& groups) {
  const std::string type = spec_of(config, module.name).data_type;
  if (type_fits(type, module.scheme)) return;
  groups.add(module.role,
             {Level::warning, "config-format", module.name,
              fmt::format("data_type {} by {}", quote(type), config.where), by_tensors(module)});
}

void check_auto_round_format(const IntegerConfig& config, const Module& module,
                             FindingGroups& groups) {
  // The bare name is older than the formats.
  const bool silent = config.format.empty() || config.format == "auto_round";
  if (silent || !is_auto_round_format(config.format)) return;
  if (format_fits(config.format, module.scheme)) return;
  groups.add(module.role, {Level::warning, "config-format", module.name,
                           fmt::format("format {} by {}", quote(config.format), config.where),
                           by_tensors(module)});
}

void check_auto_round_sizes(const IntegerConfig& config, const Module& module,
                            FindingGroups& groups) {
  const IntegerSpec spec = spec_of(config, module.name);
  const int bits = dtype_bits(module.scheme.weight);
  if (spec.bits && *spec.bits != bits) {
    groups.add(module.role, {Level::warning, "config-bits", module.name,
                             fmt::format("{} bits by {}", *spec.bits, config.where),
                             fmt::format("{} bits: {}", bits, by_tensors(module))});
  }
  if (!spec.block && !spec.group_size) return;
  const Granularity stated = spec.block.value_or(Granularity{1, spec.group_size.value_or(0)});
  const Granularity& found = module.scheme.scale->granularity;
  const bool blocks = stated.rows > 1 && found.rows > 1;  // compared by FP8's own check
  if (blocks || same_sharing(stated, found, module)) return;
  groups.add(module.role,
             {Level::warning, "config-group-size", module.name,
              fmt::format("group_size of {} by {}", sharing_text(stated), config.where),
              fmt::format("{}: {}", sharing_text(found), by_tensors(module))});
}

void check_mlx_copy(const IntegerConfig& config, const Module& module, FindingGroups& groups) {
  const IntegerSpec spec = spec_of(config, module.name);
  const MlxSpec copy = mlx_spec_of(config, module.name);
  const auto differs = [](const std::optional<std::int64_t>& a,
                          const std::optional<std::int64_t>& b) { return a && b && *a != *b; };
  const bool other = !copy.mode.empty() && copy.mode != "affine";
  if (!other && !copy.plain && !differs(copy.bits, spec.bits) &&
      !differs(copy.group_size, spec.group_size)) {
    return;
  }
  const auto text = [](std::optional<std::int64_t> value) {
    return value ? fmt::format("{}", *value) : std::string("none");
  };
  groups.add(module.role,
             {Level::warning, "config-places-differ", module.name,
              copy.plain ? config.mlx_where + " leaves it plain"
                         : fmt::format("bits {}, group_size {}, mode {} by {}", text(copy.bits),
                                       text(copy.group_size), quote(other ? copy.mode : "affine"),
                                       config.mlx_where),
              fmt::format("bits {}, group_size {} as in {}", text(spec.bits), text(spec.group_size),
                          config.where)});
}

}  // namespace fewbit
