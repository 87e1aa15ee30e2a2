// SPDX-License-Identifier: Apache-2.0
// Where a Quark config and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

bool is_filled(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  const Json::Object* members = value != nullptr ? value->as_object() : nullptr;
  return members != nullptr && !members->empty();
}

// dtype of global_quant_config.weight; of a list, the one of the codes, which stands first.
std::string global_dtype(const Json& block) {
  const Json* global = block.find("global_quant_config");
  const Json* weight = global != nullptr ? global->find("weight") : nullptr;
  if (weight != nullptr && weight->as_array() != nullptr && !weight->as_array()->empty()) {
    weight = &weight->as_array()->front();
  }
  const Json* dtype = weight != nullptr ? weight->find("dtype") : nullptr;
  const std::string* name = dtype != nullptr ? dtype->as_string() : nullptr;
  return name != nullptr ? *name : std::string();
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

}  // namespace

void check_quark(Inventory& inventory) {
  const Declaration* declared = inventory.declared.first();
  if (declared == nullptr || declared->producer != Producer::quark) return;
  const Json& block = *declared->block;
  const std::string dtype = global_dtype(block);
  // Other configs for some of the layers: then the global one holds for an unknown rest.
  const bool one =
      !is_filled(block, "layer_quant_config") && !is_filled(block, "layer_type_quant_config");
  if (!one || dtype.empty()) return;
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (module.scheme.producer != Producer::quark || dtype == quark_dtype(module.scheme.weight)) {
      continue;
    }
    groups.add(module.role,
               {Level::warning, "config-algorithm", module.name, scheme_text(module.scheme),
                fmt::format("dtype {} of {} global_quant_config", quote(dtype), declared->where)});
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
