// SPDX-License-Identifier: Apache-2.0
#include "inventory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "command.hpp"
#include "core/checked.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

// Weights of a module: a matrix, one for each expert, or a vector; a bias has one a row.
std::uint64_t parameters_of(const Module& module) {
  if (!module.unreadable.empty() || module.n < 1) return 0;
  const bool biased = module.k > 0 && !module.part("bias").empty();
  const std::int64_t columns = std::max<std::int64_t>(module.k, 1) + (biased ? 1 : 0);
  const auto matrix = checked_mul(module.n, columns);
  const auto all =
      matrix ? checked_mul(*matrix, std::max<std::int64_t>(module.experts, 1)) : std::nullopt;
  return static_cast<std::uint64_t>(all.value_or(0));
}

SchemeTotal sum_of(const std::vector<SchemeTotal>& schemes) {
  SchemeTotal sum{.scheme = "all"};
  for (const SchemeTotal& scheme : schemes) {
    sum.tensors += scheme.tensors;
    sum.parameters += scheme.parameters;
    sum.bytes += scheme.bytes;
  }
  return sum;
}

}  // namespace

double SchemeTotal::bits_a_weight() const {
  return parameters > 0 ? 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters) : 0;
}

std::uint64_t module_bytes(const Checkpoint& checkpoint, const Module& module) {
  std::uint64_t bytes = 0;
  for (const Module::Part& part : module.parts) {
    if (const TensorInfo* info = checkpoint.find(part.tensor)) bytes += info->bytes;
  }
  return bytes;
}

Inventory take_inventory(const Checkpoint& checkpoint, const Identified& identified) {
  std::map<std::tuple<std::string, std::string, std::string>, InventoryRow> groups;
  std::map<std::string, SchemeTotal> schemes;
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
    SchemeTotal& total = schemes[module.unreadable.empty() ? scheme : "not readable"];
    total.tensors += module.parts.size();
    total.parameters += parameters_of(module);
    total.bytes += bytes;
  }
  for (auto& [unused, row] : groups) out.rows.push_back(std::move(row));
  std::stable_sort(out.rows.begin(), out.rows.end(),
                   [](const InventoryRow& a, const InventoryRow& b) { return a.bytes > b.bytes; });
  for (auto& [name, total] : schemes) {
    total.scheme = name;
    out.schemes.push_back(std::move(total));
  }
  std::ranges::stable_sort(out.schemes, std::ranges::greater{}, &SchemeTotal::bytes);
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

std::string inventory_text(const Inventory& inventory) {
  Table table({Align::left, Align::right, Align::left, Align::right, Align::right});
  table.add({"role", "modules", "scheme", "bytes", "share"});
  const auto all = static_cast<double>(std::max<std::uint64_t>(inventory.total_bytes, 1));
  for (const InventoryRow& row : inventory.rows) {
    table.add({row.role, std::to_string(row.modules), row.scheme, bytes_text(row.bytes),
               fmt::format("{:.1f} %", 100.0 * static_cast<double>(row.bytes) / all)});
  }
  return table.text();
}

std::string scheme_totals_text(const Inventory& inventory) {
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right});
  table.add({"scheme", "tensors", "parameters", "bytes", "bits a weight"});
  std::vector<SchemeTotal> rows = inventory.schemes;
  if (rows.size() > 1) rows.push_back(sum_of(rows));
  for (const SchemeTotal& row : rows) {
    table.add({row.scheme, std::to_string(row.tensors), std::to_string(row.parameters),
               bytes_text(row.bytes),
               row.parameters > 0 ? fmt::format("{:.2f}", row.bits_a_weight()) : "-"});
  }
  return table.text();
}

Json scheme_totals_json(const Inventory& inventory) {
  Json rows{Json::Array{}};
  for (const SchemeTotal& row : inventory.schemes) {
    Json entry;
    entry.set("scheme", row.scheme);
    entry.set("tensors", row.tensors);
    entry.set("parameters", row.parameters);
    entry.set("bytes", row.bytes);
    if (row.parameters > 0) entry.set("bits_a_weight", row.bits_a_weight());
    rows.push_back(entry);
  }
  return rows;
}

}  // namespace fewbit::cli
