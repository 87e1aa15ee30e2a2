// SPDX-License-Identifier: Apache-2.0
#include "scheme/word_forms.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/whole_words.hpp"

namespace fewbit {
namespace {

// The lowest `bits` bits, of any number.
constexpr std::uint32_t low_bits(std::int64_t bits) {
  if (bits <= 0) return 0;
  return bits >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << bits) - 1U;
}

std::uint32_t word_at(const WordLines& from, std::int64_t line, std::int64_t i) {
  const std::int64_t at =
      line / from.each * from.block + line % from.each * from.line + i * from.step;
  std::uint32_t word = 0;
  std::memcpy(&word, from.bytes.data() + at * 4, sizeof word);
  return word;
}

WordForms forms_of_line(const WordLines& from, std::int64_t line, int bits) {
  WordForms forms;
  const std::int64_t fit = 32 / bits;
  const std::uint32_t inside = low_bits(fit * bits);
  for (std::int64_t i = 0; i < from.words && forms.gaps; ++i) {
    forms.gaps = (word_at(from, line, i) & ~inside) == 0;
  }
  const std::uint32_t last = word_at(from, line, from.words - 1);
  const std::int64_t before = from.words - 1;
  forms.stream = (last & ~low_bits(from.count * bits - before * 32)) == 0;
  forms.whole = forms.gaps && (last & ~low_bits((from.count - before * fit) * bits)) == 0;
  return forms;
}

// The part behind an underscore, or behind a dot in fused experts.
const TensorInfo* find_part(const Checkpoint& checkpoint, const Module& module,
                            std::string_view suffix) {
  constexpr std::size_t prefix = std::string_view("weight_").size();
  const std::string_view name = module.part(suffix);
  return checkpoint.find(name.empty() ? module.part(suffix.substr(prefix)) : name);
}

class Check {
 public:
  Check(Inventory& inventory, std::string_view version, const std::string& where)
      : inventory_(inventory),
        version_(version),
        where_(where),
        stated_(packs_whole_codes(version)) {}

  void run() {
    std::vector<Found> found;
    for (Draft& draft : inventory_.drafts) {
      const Scheme& scheme = draft.module.scheme;
      const bool words = scheme.packing == Packing::words_row && scheme.zero_point > 0;
      const bool readable = draft.claimed && draft.module.unreadable.empty();
      if (!words || !readable || 32 % dtype_bits(scheme.weight) == 0) continue;
      found.push_back({&draft.module, word_forms(*inventory_.checkpoint, draft.module)});
      const WordForms both = found.back().forms.both();
      if (both.whole != both.stream) (both.whole ? any_whole_ : any_stream_) = true;
    }
    for (const Found& one : found) check(*one.module, one.forms);
    for (Finding& finding : std::move(groups_).take()) {
      inventory_.findings.push_back(std::move(finding));
    }
  }

 private:
  struct Found {
    Module* module = nullptr;
    ModuleForms forms;
  };

  void check(Module& module, const ModuleForms& forms) {
    const WordForms both = forms.both();
    if (!both.stream && !both.whole) return refuse(module, "and codes and zero points fit neither");
    if (both.stream && both.whole) return check_open(module);
    // Whole codes without their last word may be as many words as a stream has.
    if (both.stream && both.gaps && forms.zeros.whole && stated_.value_or(any_whole_)) {
      return refuse(module, "and words are missing: " + whole_text());
    }
    if (stated_ && *stated_ != both.whole) add(module, both.whole);
  }

  void check_open(Module& module) {
    const std::int64_t fit = 32 / dtype_bits(module.scheme.weight);
    const bool same = module.k <= fit && (!module.scheme.zero_points || module.n <= fit);
    if (same) return;
    const bool siblings = any_whole_ != any_stream_;
    if (!siblings && !stated_) {
      refuse(module,
             "and neither these, nor other modules, nor a version in the config tell which");
    } else if (siblings ? any_whole_ : *stated_) {
      refuse(module, "which have no bit that tells which, and are not read as a stream: " +
                         (siblings ? "other modules hold whole codes" : whole_text()));
    }
  }

  std::string whole_text() const {
    if (!stated_) return "other modules hold whole codes";
    return fmt::format("version {} by {} packs whole codes", quote(version_), where_);
  }

  void add(const Module& module, bool whole) {
    const std::string_view forms[] = {"a stream of bits", "whole codes in every word"};
    groups_.add(module.role,
                {Level::warning, "config-version", module.name,
                 fmt::format("version {} by {}, which packs {}", quote(version_), where_,
                             forms[whole ? 0 : 1]),
                 fmt::format("{} by the tensors: {}", forms[whole ? 1 : 0], module.evidence)});
  }

  void refuse(Module& module, const std::string& why) const {
    const int bits = dtype_bits(module.scheme.weight);
    const TensorInfo* codes = find_part(*inventory_.checkpoint, module, "weight_packed");
    module.unreadable = fmt::format(
        "{} words of {}-bit codes for {} columns ({} for a stream of bits, {} for whole codes in "
        "every word), {}",
        codes->shape.back(), bits, module.k, words_of_codes(module.k, bits, false),
        words_of_codes(module.k, bits, true), why);
  }

  Inventory& inventory_;
  std::string_view version_;
  const std::string& where_;
  std::optional<bool> stated_;
  bool any_whole_ = false;
  bool any_stream_ = false;
  FindingGroups groups_;
};

}  // namespace

WordForms forms_of(const WordLines& lines, int bits) {
  WordForms forms;
  forms.stream = lines.words == words_of_codes(lines.count, bits, false);
  forms.whole = lines.words == words_of_codes(lines.count, bits, true);
  for (std::int64_t line = 0; line < lines.lines; ++line) {
    if (!forms.stream || (!forms.whole && !forms.gaps)) break;
    const WordForms here = forms_of_line(lines, line, bits);
    forms.stream = forms.stream && here.stream;
    forms.whole = forms.whole && here.whole;
    forms.gaps = forms.gaps && here.gaps;
  }
  return forms;
}

ModuleForms word_forms(const Checkpoint& checkpoint, const Module& module) {
  ModuleForms out;
  const int bits = dtype_bits(module.scheme.weight);
  const TensorInfo* packed = find_part(checkpoint, module, "weight_packed");
  if (packed == nullptr || packed->shape.empty() || packed->shape.back() < 1) return out;
  const PassingTensor codes(checkpoint, *packed);
  WordLines rows;
  rows.bytes = codes.bytes();
  rows.words = rows.block = packed->shape.back();
  rows.lines = static_cast<std::int64_t>(rows.bytes.size()) / 4 / rows.words;
  rows.count = module.k;
  out.codes = forms_of(rows, bits);
  const TensorInfo* zero = find_part(checkpoint, module, "weight_zero_point");
  if (zero == nullptr || zero->dtype != DType::i32 || zero->shape.size() < 2) return out;
  const PassingTensor zeros(checkpoint, *zero);
  WordLines columns;
  columns.bytes = zeros.bytes();
  columns.each = columns.step = zero->shape.back();
  columns.words = zero->shape[zero->shape.size() - 2];
  if (columns.each < 1 || columns.words < 1) return out;
  columns.block = columns.words * columns.each;
  columns.line = 1;
  columns.count = module.n;
  columns.lines = static_cast<std::int64_t>(columns.bytes.size()) / 4 / columns.words;
  out.zeros = forms_of(columns, bits);
  return out;
}

bool holds_whole_codes(const Checkpoint& checkpoint, const Module& module) {
  if (module.scheme.packing != Packing::words_row) return false;
  if (32 % dtype_bits(module.scheme.weight) == 0) return false;  // both forms are one
  const WordForms both = word_forms(checkpoint, module).both();
  return both.whole && !both.stream;
}

std::optional<bool> packs_whole_codes(std::string_view version) {
  int numbers[2] = {0, 0};
  const char* at = version.data();
  const char* const end = at + version.size();
  for (int i = 0; i < 2; ++i) {
    const auto [behind, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc() || numbers[i] < 0) return std::nullopt;
    if (i == 0 && (behind == end || *behind != '.')) return std::nullopt;
    at = i == 0 ? behind + 1 : behind;
  }
  const bool old = numbers[0] == 0 && numbers[1] < 18;
  // Builds between the last release with whole codes and the first one without.
  const bool release = version.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!release && numbers[0] == 0 && (numbers[1] == 17 || numbers[1] == 18)) return std::nullopt;
  return old;
}

void check_word_forms(Inventory& inventory, std::string_view version, const std::string& where) {
  Check(inventory, version, where).run();
}

}  // namespace fewbit
