// SPDX-License-Identifier: Apache-2.0
#include "inventory.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace fewbit::cli {

std::uint64_t module_bytes(const Checkpoint& checkpoint, const Module& module) {
  std::uint64_t bytes = 0;
  for (const Module::Part& part : module.parts) {
    if (const TensorInfo* info = checkpoint.find(part.tensor)) bytes += info->bytes;
  }
  return bytes;
}

Inventory take_inventory(const Checkpoint& checkpoint, const Identified& identified) {
  std::map<std::tuple<std::string, std::string, std::string>, InventoryRow> groups;
  Inventory out;
  for (const Module& module : identified.modules) {
    const std::string role =
        std::string(module.expert != -1 ? "expert " : "") + role_name(module.role);
    const std::string scheme =
        module.unreadable.empty() ? scheme_text(module.scheme) : module.unreadable;
    InventoryRow& row = groups[{role, scheme, module.unreadable}];
    if (row.modules == 0) row = {role, scheme, module.unreadable, 0, 0, module.name};
    const std::uint64_t bytes = module_bytes(checkpoint, module);
    ++row.modules;
    row.bytes += bytes;
    out.total_bytes += bytes;
  }
  for (auto& [unused, row] : groups) out.rows.push_back(std::move(row));
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const InventoryRow& a, const InventoryRow& b) { return a.bytes > b.bytes; });
  return out;
}

Json inventory_json(const Inventory& inventory) {
  Json rows{Json::Array{}};
  for (const InventoryRow& row : inventory.rows) {
    Json entry;
    entry.set("role", row.role);
    entry.set("scheme", row.scheme);
    entry.set("readable", row.unreadable.empty());
    entry.set("modules", row.modules);
    entry.set("bytes", row.bytes);
    entry.set("example", row.example);
    rows.push_back(entry);
  }
  return rows;
}

}  // namespace fewbit::cli
