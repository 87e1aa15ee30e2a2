// SPDX-License-Identifier: Apache-2.0
// The modules of a checkpoint, grouped by role and scheme.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit::cli {

struct InventoryRow {
  std::string role;
  std::string scheme;
  std::string unreadable;  // why these modules can't be read; empty: they can
  std::uint64_t modules = 0;
  std::uint64_t bytes = 0;
  std::string example;  // name of the first module
};

// All modules of one scheme, whatever their role.
struct SchemeTotal {
  std::string scheme;
  std::uint64_t tensors = 0;     // as stored: codes, scales and all that goes with them
  std::uint64_t parameters = 0;  // weights that they stand for
  std::uint64_t bytes = 0;

  // 0: nothing that can be read.
  double bits_a_weight() const;
};

struct Inventory {
  std::vector<InventoryRow> rows;    // largest first
  std::vector<SchemeTotal> schemes;  // largest first
  std::uint64_t total_bytes = 0;
};

Inventory take_inventory(const Checkpoint& checkpoint, const Identified& identified);
Json inventory_json(const Inventory& inventory);
// A line a role and scheme.
std::string inventory_text(const Inventory& inventory);
// A line a scheme, and one of all.
std::string scheme_totals_text(const Inventory& inventory);
Json scheme_totals_json(const Inventory& inventory);
// Bytes of all parts of a module.
std::uint64_t module_bytes(const Checkpoint& checkpoint, const Module& module);

}  // namespace fewbit::cli
