// SPDX-License-Identifier: Apache-2.0
// Where a Quark config and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/reader.hpp"
#include "scheme/scale_sharing.hpp"

namespace fewbit {
namespace {

bool is_filled(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  const Json::Object* members = value != nullptr ? value->as_object() : nullptr;
  return members != nullptr && !members->empty();
}

std::string text_of(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  const std::string* text = value != nullptr ? value->as_string() : nullptr;
  return text != nullptr ? *text : std::string();
}

// global_quant_config.weight; of a list, the part of the codes, which stands first.
struct Said {
  std::string dtype;
  std::string sharing;  // qscheme
  std::optional<std::int64_t> group_size;
};
Said global_weight(const Json& block) {
  const Json* global = block.find("global_quant_config");
  const Json* weight = global != nullptr ? global->find("weight") : nullptr;
  if (weight != nullptr && weight->as_array() != nullptr && !weight->as_array()->empty()) {
    weight = &weight->as_array()->front();
  }
  if (weight == nullptr) return {};
  Said said{text_of(*weight, "dtype"), text_of(*weight, "qscheme"), std::nullopt};
  if (const Json* size = weight->find("group_size")) said.group_size = size->as_int64();
  return said;
}

bool fits(const Said& said, const Module& module, std::string_view dtype) {
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
    case DType::i8:
      return "int8";
    default:
      return dtype_name(dtype);
  }
}

// Groups of another length than the config says.
void check_group_size(const Said& said, const std::string& where, const Module& module,
                      FindingGroups& groups) {
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
  groups.add(module.role,
             {Level::warning, "config-group-size", module.name,
              fmt::format("group_size {} of {} global_quant_config", *said.group_size, where),
              fmt::format("{}, as the scales say: {}", stored, module.evidence)});
}

}  // namespace

void check_quark(Inventory& inventory) {
  const Declaration* declared = inventory.declared.first();
  if (declared == nullptr || declared->producer != Producer::quark) return;
  const Json& block = *declared->block;
  const Said said = global_weight(block);
  // Other configs for some of the layers: then the global one holds for an unknown rest.
  const bool one =
      !is_filled(block, "layer_quant_config") && !is_filled(block, "layer_type_quant_config");
  if (!one || said.dtype.empty()) return;
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (module.scheme.producer != Producer::quark) continue;
    if (fits(said, module, quark_dtype(module.scheme.weight))) {
      check_group_size(said, declared->where, module, groups);
      continue;
    }
    groups.add(module.role,
               {Level::warning, "config-algorithm", module.name, scheme_text(module.scheme),
                fmt::format("dtype {}, qscheme {} of {} global_quant_config", quote(said.dtype),
                            quote(said.sharing), declared->where)});
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
