// SPDX-License-Identifier: Apache-2.0
// Where a Quark config and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/quark_config.hpp"
#include "scheme/reader.hpp"
#include "scheme/scale_sharing.hpp"

namespace fewbit {
namespace {

bool fits(const QuarkWeight& said, const Module& module, std::string_view dtype) {
  if (said.dtype != dtype) return false;
  if (!module.unreadable.empty() || !module.scheme.scale) return true;
  std::string_view sharing = said.sharing;
  if (sharing.starts_with("per_")) sharing.remove_prefix(4);
  return sharing_fits({sharing, said.group_size, std::nullopt}, module);
}

// Quark's name of codes.
std::string_view quark_dtype(DType dtype) {
  switch (dtype) {
    case DType::f4_e2m1:
      return "fp4";
    case DType::f8_e4m3:
      return "fp8_e4m3";
    case DType::f8_e5m2:
      return "fp8_e5m2";
    case DType::f6_e3m2:
      return "fp6_e3m2";
    case DType::f6_e2m3:
      return "fp6_e2m3";
    case DType::i8:
      return "int8";
    case DType::i4:
      return "int4";
    case DType::u4:
      return "uint4";
    default:
      return dtype_name(dtype);
  }
}

// Groups of another length than the config says.
void check_group_size(const QuarkWeight& said, const Module& module, FindingGroups& groups) {
  if (!said.group_size || *said.group_size < 1 || !module.unreadable.empty() ||
      !module.scheme.scale || !said.sharing.ends_with("group")) {
    return;
  }
  const Granularity& grid = module.scheme.scale->granularity;
  const std::int64_t stored = grid.cols == 0 ? module.k : grid.cols;
  // One group a row, or the last one of a short row.
  if (grid.rows > 1 || stored == *said.group_size ||
      (stored >= module.k && *said.group_size >= module.k)) {
    return;
  }
  groups.add(module.role, {Level::warning, "config-group-size", module.name,
                           fmt::format("group_size {} of {}", *said.group_size, said.where),
                           fmt::format("{}, as the scales say: {}", stored, module.evidence)});
}

void check_module(const QuarkWeight& said, const Module& module, FindingGroups& groups) {
  if (said.plain) {
    groups.add(module.role, {Level::warning, "config-excludes-quantized", module.name,
                             "quantized tensors: " + module.evidence,
                             fmt::format("plain ones: {} has no weight", said.where)});
  } else if (fits(said, module, quark_dtype(module.scheme.weight))) {
    check_group_size(said, module, groups);
  } else if (!said.dtype.empty()) {
    groups.add(module.role,
               {Level::warning, "config-algorithm", module.name, scheme_text(module.scheme),
                fmt::format("dtype {}, qscheme {} of {}", quote(said.dtype), quote(said.sharing),
                            said.where)});
  }
}

}  // namespace

void check_quark(Inventory& inventory) {
  const std::optional<QuarkConfig> config = read_quark_config(inventory.declared);
  if (!config) return;
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (module.scheme.producer != Producer::quark || dtype_bits(module.scheme.weight) >= 16)
      continue;
    if (const auto said = config->weight_of(module)) check_module(*said, module, groups);
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
