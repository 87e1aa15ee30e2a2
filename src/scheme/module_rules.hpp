// SPDX-License-Identifier: Apache-2.0
// Lists of modules in quantization configs, read as the producer that wrote them reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheme/declared.hpp"
#include "scheme/literal_index.hpp"
#include "scheme/module_match.hpp"

namespace fewbit {

class NumberedNames;

struct PatternEntry {
  std::string text;
  std::string source;   // "config.json quantization_config.ignore"
  bool target = false;  // names what is quantized, not what stays as it is
};

// How a producer reads an entry.
struct Dialect {
  PatternKind literal = PatternKind::components;  // of an entry that is nothing else
  bool re_prefix = false;                         // "re:…" is a regular expression
  bool wildcards = false;                         // * ? [ make it a glob
  bool metacharacters = false;                    // those of a regular expression make it one
  bool searches = false;    // a regular expression may begin anywhere, as with Python's re.search
  bool in_order = false;    // of several entries that match the first counts, of whatever kind
  bool from_start = false;  // without a wrapper's prefix it names nothing that has one
  bool any_part = false;    // one excluded part excludes a fused module; else all must agree
  // A pattern that matches a fused name takes all its parts; else only one that matches no part.
  bool by_fused_name = false;
};
Dialect dialect_of(Producer producer);
// Whose dialect the lists of a block are in: ModelOpt's where it quantized the experts of an FP8
// model again (moe_quant_algo), else the declared producer's.
Producer list_producer(const Declaration& declaration);

// Every module that a declaration leaves unquantized by name, under all the names of such lists:
// ignore, exclude_modules, exclude, modules_to_not_convert, ignored_layers.
std::vector<PatternEntry> ignore_entries(const Declaration& declaration);

// Every module that a declaration gives a scheme of its own, and how such names are read: GPTQ's
// `dynamic`, AutoRound's `extra_config`, Quark's `layer_quant_config`.
std::vector<PatternEntry> rule_entries(const Declaration& declaration);
Dialect rule_dialect(Producer producer);

// What else is known of the file that a list belongs to.
struct ListContext {
  bool contradicted = false;  // modules are quantized or plain against the config
  std::optional<std::int64_t> layers;
};
// Whether findings say so.
bool says_contradicted(std::span<const Finding> findings);

class ModuleRules {
 public:
  // Without a budget that other lists share (Declaration::budget) it has its own.
  ModuleRules(const Dialect& dialect, std::vector<PatternEntry> entries,
              std::shared_ptr<MatchBudget> budget = nullptr);

  struct Verdict {
    // partly: a fused module of whose parts, or experts, only some are listed.
    enum class Kind { none, whole, partly };
    Kind kind = Kind::none;
    const PatternEntry* entry = nullptr;  // the first that matches
    std::string listed_parts;             // "gate_proj", "3 of 8 experts"; of partly
    std::string other_parts;
  };
  // Under its own name, else its name with other prefixes, with a wrapper's suffix (".linear"), as
  // the parts of a fused projection, or as a part of one (see Dialect::by_fused_name).
  Verdict judge(std::string_view module) const;
  // The same; experts in one tensor also one by one, as the list may name them.
  Verdict judge(const Module& module) const;

  // Entries that name no module, under these or as part or whole of a fused matrix; in order.
  std::vector<std::size_t> unmatched(std::span<const std::string_view> modules) const;
  // What is wrong with the entries themselves: pattern-unmatched, pattern-wide, pattern-invalid,
  // pattern-limit. `modules` in order of name.
  std::vector<Finding> report(std::span<const std::string_view> modules,
                              const ListContext& context = {}) const;

  std::span<const PatternEntry> entries() const { return entries_; }
  // Patterns that were really tried on a name.
  std::uint64_t tries() const { return tries_; }
  // Entries that took too many steps on some name, and those that others left no steps for; neither
  // is used after that.
  const std::map<std::size_t, Error>& limits() const { return limits_; }
  const std::set<std::size_t>& starved() const { return starved_; }

 private:
  // Names are looked up by hash, so that long lists cost no more than short ones.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  template <class T>
  using Lookup = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  // One name with every wrapper's prefix, made when first asked for.
  class Spellings {
   public:
    explicit Spellings(std::string_view name) : name_(name) {}
    std::string_view name() const { return name_; }
    std::span<const std::string> others();

   private:
    std::string_view name_;
    std::vector<std::string> others_;
  };

  void add_entry(std::size_t entry);
  void add_components(std::string_view text, std::size_t entry);
  void add_holder(std::string_view text, std::size_t entry);
  std::string_view held_text(const std::pair<std::size_t, std::size_t>& place) const;
  void index_literals();
  std::vector<std::size_t> candidates(Spellings& module) const;
  bool pattern_hits(std::size_t entry, Spellings& module) const;
  bool prefixed_hits(std::size_t entry, Spellings& module) const;
  bool hits(std::size_t entry, std::string_view name) const;
  void give_up(std::string_view name) const;
  // Calls visit(entry) for each literal entry that names this module.
  void visit_literals(std::string_view name, const std::function<void(std::size_t)>& visit) const;
  void visit_holders(std::string_view name, const std::function<void(std::size_t)>& visit) const;
  // The first entry that names it, but for patterns that `passes_over` takes out.
  using EntryTest = std::function<bool(std::size_t entry)>;
  std::optional<std::size_t> find(std::string_view name,
                                  const EntryTest& passes_over = nullptr) const;
  std::optional<std::size_t> find_fused(std::string_view module, const std::string& fused) const;
  Verdict judge_parts(std::string_view module) const;
  Verdict judge_experts(const Module& module) const;
  void report_unmatched(std::span<const std::string_view> modules, const ListContext& context,
                        std::vector<Finding>& findings) const;
  std::vector<bool> named(const Dialect& dialect, std::vector<PatternEntry> entries,
                          std::span<const std::string_view> modules) const;
  std::vector<std::string> meant_entries(std::span<const std::size_t> entries,
                                         std::span<const std::string_view> modules) const;
  void report_refused(std::vector<Finding>& findings) const;
  void report_starved(std::vector<Finding>& findings) const;
  void add_unmatched(Level level, std::span<const std::size_t> list, std::string expected,
                     std::vector<Finding>& findings) const;
  std::optional<Finding> too_wide(std::size_t entry, const NumberedNames& names) const;

  Dialect dialect_;
  std::vector<PatternEntry> entries_;
  std::shared_ptr<MatchBudget> budget_;
  using Entries = Lookup<std::vector<std::size_t>>;
  Entries exact_;                  // whole names without a wrapper's prefix
  Entries components_;             // runs of components
  Lookup<bool> first_components_;  // of components_
  Entries anchored_;               // leading components behind a wrapper's prefix
  // Entries that hold a name: each with each start of a component, in order of the text from there.
  std::vector<std::pair<std::size_t, std::size_t>> holders_;
  std::map<std::size_t, ModulePattern> patterns_;  // all other kinds, tried one by one
  // Literals that names need for the patterns, numbered as in pattern_entries_.
  std::optional<LiteralIndex> literals_;
  std::vector<std::size_t> pattern_entries_;
  bool any_prefixed_ = false;  // a pattern may match under another prefix
  bool any_suffixed_ = false;  // or with a wrapper's suffix
  mutable std::uint64_t tries_ = 0;
  mutable bool gave_up_ = false;
  std::map<std::size_t, Error> failures_;        // of compiling
  mutable std::map<std::size_t, Error> limits_;  // of matching: such an entry is tried no more
  mutable std::set<std::size_t> starved_;        // no steps were left for it, that others took
};

}  // namespace fewbit
