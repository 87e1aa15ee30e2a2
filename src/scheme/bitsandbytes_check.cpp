// SPDX-License-Identifier: Apache-2.0
// Where the config of bitsandbytes and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include "core/ascii.hpp"
#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

bool is_set(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  return value != nullptr && value->as_bool() == true;
}

void check_one(const Declaration& declaration, const Module& module, FindingGroups& groups) {
  const Json& block = *declaration.block;
  const bool four = is_set(block, "load_in_4bit");
  const bool eight = is_set(block, "load_in_8bit");
  const bool stored_four = module.scheme.weight == DType::nf4;
  const auto differs = [&](const char* rule, const std::string& says) {
    groups.add(
        module.role,
        {Level::warning, rule, module.name, fmt::format("{} says {}", declaration.where, says),
         fmt::format("{}, as the tensors say: {}", scheme_text(module.scheme), module.evidence)});
  };
  if (four != eight && four != stored_four) {
    differs("config-bits", four ? "load_in_4bit" : "load_in_8bit");
  }
  const Json* type = block.find("bnb_4bit_quant_type");
  const std::string* name = type != nullptr ? type->as_string() : nullptr;
  if (stored_four && !eight && name != nullptr && lower_ascii(*name) != "nf4") {
    differs("config-format", "bnb_4bit_quant_type " + quote(*name));
  }
}

}  // namespace

void check_bitsandbytes(Inventory& inventory) {
  const Declaration* declared = inventory.declared.first();
  if (declared == nullptr || declared->producer != Producer::bitsandbytes ||
      !declared->block->is_object()) {
    return;
  }
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    const bool read = module.unreadable.empty() && module.scheme.quantized();
    if (read && module.scheme.producer == Producer::bitsandbytes) {
      check_one(*declared, module, groups);
    }
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
