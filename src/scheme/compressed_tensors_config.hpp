// SPDX-License-Identifier: Apache-2.0
// compressed-tensors' quantization block: groups of modules and how each is quantized.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "scheme/module_rules.hpp"

namespace fewbit {

struct Draft;

// QuantizationArgs of weights or activations.
struct CtArgs {
  int bits = 8;
  bool bits_usable = true;  // num_bits is a width, or absent
  bool floating = false;    // type "float", else "int"
  bool symmetric = true;
  bool fixed = false;                      // "dynamic": false, in so many words
  std::optional<std::int64_t> group_size;  // of strategy group; -1 and null are none
  std::optional<Granularity> block;        // block_structure, also as "128x128"
  std::string strategy;                    // as written; empty when left to be inferred
  ActOrder act_order = ActOrder::none;
};

struct CtGroup {
  std::string name;    // "group_0"
  std::string format;  // its own, else the one of the whole block; may be empty
  std::optional<CtArgs> weights;
  std::optional<CtArgs> activations;
};

class CtConfig {
 public:
  // Of the first declaration that is compressed-tensors'; empty when there is none. A target that
  // names no module of `drafts` (in order of name) is read in the other spelling of projections,
  // gate_proj for w1: engines have names of their own.
  static std::optional<CtConfig> read(const Declared& declared, std::span<const Draft> drafts);

  // The group that quantizes a module: exact names before regular expressions (in order of their
  // text) before classes; nullptr when it is ignored or no target matches.
  const CtGroup* group_of(const Module& module) const;
  // Whether a target that is no class names it.
  bool is_named(const Module& module) const { return target_of(module.name) != nullptr; }
  // Why all quantized modules must be refused: a rotation, a sparsity format; empty when none.
  const std::string& obstacle() const { return obstacle_; }
  const std::string& where() const { return where_; }
  const std::string& format() const { return format_; }
  // Of the library that wrote the checkpoint: "0.12.2"; may be empty.
  const std::string& version() const { return version_; }
  const std::vector<CtGroup>& groups() const { return groups_; }
  // What is odd in the block itself, and targets that match nothing.
  std::vector<Finding> findings(std::span<const std::string_view> modules,
                                const ListContext& context) const;

 private:
  void read_block(const Json& block);
  void read_groups(const Json& groups);
  void read_group(const std::string& name, const Json& value);
  void read_obstacles(const Json& block);
  void add_target(const std::string& target, std::size_t group);
  void read_targets(std::span<const Draft> drafts);
  const PatternEntry* target_of(const std::string& module) const;

  std::string where_;
  std::string format_;
  std::string version_;
  std::string obstacle_;
  std::vector<CtGroup> groups_;
  std::map<std::string, std::size_t> target_groups_;  // by text, classes too
  std::vector<std::string> unknown_classes_;
  std::vector<Finding> odd_;
  // Shared, for they are not to be copied.
  std::shared_ptr<const ModuleRules> targets_;
  std::shared_ptr<const ModuleRules> respelled_;  // those in the other spelling; may be null
  std::shared_ptr<const ModuleRules> ignored_;
  std::shared_ptr<MatchBudget> budget_;
};

}  // namespace fewbit
