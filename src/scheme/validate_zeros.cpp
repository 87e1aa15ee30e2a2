// SPDX-License-Identifier: Apache-2.0
// Matrices, norms and ends of files of nothing but zeros, as an interrupted download leaves them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/float_types.hpp"
#include "core/text_search.hpp"
#include "scheme/model_hints.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Every byte is `value` in the bits of `mask`. Most data say no in their first bytes.
struct Pattern {
  std::byte mask{0xff};
  std::byte value{0};
};
bool is_all(std::span<const std::byte> bytes, Pattern pattern) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](std::byte byte) { return (byte & pattern.mask) == pattern.value; });
}

// Values of nothing but +0 and -0, `width` bytes each, the sign in the last.
bool is_all_float_zero(std::span<const std::byte> bytes, std::size_t width) {
  constexpr std::byte sign{0x80};
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const bool minus = bytes[at] == sign && at % width == width - 1;
    if (bytes[at] != std::byte{0} && !minus) return false;
  }
  return true;
}

std::uint64_t zeros_at_end(std::span<const std::byte> bytes) {
  const auto last = std::find_if(bytes.rbegin(), bytes.rend(),
                                 [](std::byte byte) { return byte != std::byte{0}; });
  return static_cast<std::uint64_t>(last - bytes.rbegin());
}

// Bytes of a matrix that is large enough to be cut in half.
constexpr std::uint64_t least_half = 4096;

bool is_plain_zero(std::span<const std::byte> bytes, DType dtype) {
  if (!is_16_or_32_bit_float(dtype)) return is_all(bytes, {});
  return is_all_float_zero(bytes, static_cast<std::size_t>(dtype_bits(dtype)) / 8);
}

// Codes that stand for 0; 4-bit codes two a byte.
Pattern zero_of(const Scheme& scheme) {
  switch (scheme.weight) {
    case DType::f4_e2m1:
      return {std::byte{0x77}, std::byte{0}};
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return {std::byte{0x7f}, std::byte{0}};
    case DType::nf4:
      return {std::byte{0xff}, std::byte{0x77}};
    default:
      if (scheme.zero_points) return {};
      if (dtype_bits(scheme.weight) == 4 && scheme.zero_point == 8) {
        return {std::byte{0xff}, std::byte{0x88}};
      }
      if (dtype_bits(scheme.weight) == 8 && scheme.zero_point == 128) {
        return {std::byte{0xff}, std::byte{0x80}};
      }
      return {};
  }
}

// Of these the weight of a norm is one less than the factor, so that zeros change nothing.
bool has_norms_around_zero(std::string_view model_type) {
  for (const std::string_view name :
       {"gemma", "qwen3_next", "qwen3_5", "nemotron", "step3", "minimax", "chatglm"}) {
    if (contains_text(model_type, name)) return true;
  }
  return model_type.empty();
}

class Zeros {
 public:
  Zeros(Validation& validation, const ModelHints& hints)
      : validation_(validation),
        norms_(!has_norms_around_zero(hints.model_type)),
        layers_(hints.num_layers.value_or(INT32_MAX)) {}

  void add(const Module& module) {
    if (!module.unreadable.empty() || !is_judged(module)) return;
    for (const Module::Part& part : module.parts) {
      if (!is_weight_suffix(part.suffix)) continue;
      const TensorInfo* info = validation_.checkpoint.find(part.tensor);
      // Blocks have their scales inside, which have a rule of their own.
      if (info == nullptr || info->blocks || info->bytes == 0) continue;
      judged_.insert(info->name);
      check(module, *info);
    }
  }

  void report() {
    for (const Zero& zero : zeros_) {
      const bool identity = is_identity(*zero.module);
      if (identity) {
        whole_.erase(zero.info->name);
        judged_.erase(zero.info->name);
      }
      validation_.add(*zero.module, identity ? Level::info : Level::warning, "weights-zero",
                      zero.info->name, zero.found,
                      identity ? "nothing: all that the layer adds is zero, so that it was put in "
                                 "as an identity"
                               : "weights");
    }
  }

  // Where the last tensors of a file are zeros, matrices among them, it was not filled to its end.
  void report_files() {
    const auto shards = validation_.checkpoint.shards();
    std::vector<std::vector<const TensorInfo*>> tensors(shards.size());
    for (const TensorInfo& info : validation_.checkpoint.tensors()) {
      tensors[static_cast<std::size_t>(info.shard)].push_back(&info);
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
      report_file(shards[i].filename().string(), tensors[i]);
    }
  }

 private:
  // Adapters begin with zeros; other vectors, tables and gates may stay so.
  bool is_judged(const Module& module) const {
    if (contains_text(module.name, "lora")) return false;
    if (module.role == Role::norm) return norms_ && !module.scheme.quantized();
    const bool attention = module.role == Role::attention_other &&
                           !contains_text(module.name, "conv") &&
                           !contains_text(module.name, "gate");
    // Whatever joins the tokens and states of a prediction head has a name of its own.
    if (is_draft(module)) return module.k > 0 && !contains_any(module.name, {"conv", "gate."});
    return module.k > 0 && (is_projection(module.role) || attention ||
                            module.role == Role::embedding || module.role == Role::head);
  }

  void check(const Module& module, const TensorInfo& info) {
    const Tensor tensor = validation_.checkpoint.tensor(info);
    const auto experts = static_cast<std::size_t>(std::max<std::int64_t>(module.experts, 1));
    const std::size_t each = info.bytes / experts;
    std::size_t zero = 0;
    std::size_t first = 0;
    for (std::size_t e = 0; e < experts && each > 0; ++e) {
      const auto bytes = tensor.view.bytes.subspan(e * each, each);
      const bool none = module.scheme.quantized()
                            ? is_all(bytes, {}) || is_all(bytes, zero_of(module.scheme))
                            : is_plain_zero(bytes, info.dtype);
      if (!none) continue;
      if (zero++ == 0) first = e;
    }
    validation_.checkpoint.release(info);
    Branches& branches = branches_[layer_path(module.name)];
    if (ends_a_branch(module)) {
      ++branches.all;
      if (zero == experts) ++branches.zero;
    } else if (zero > 0) {
      branches.others = true;
    }
    if (zero == 0) return;
    if (zero == experts) whole_.insert(info.name);
    zeros_.push_back(
        {&module, &info,
         experts > 1
             ? fmt::format("{} of {} experts are all zero, the first {}", zero, experts, first)
             : fmt::format("{} bytes, all zero{}", info.bytes,
                           module.scheme.quantized() ? " or the code of 0" : "")});
  }

  bool is_draft(const Module& module) const {
    return module.layer >= layers_ || contains_any(module.name, {"mtp.", "mtp_layers."});
  }

  // What a layer adds to the hidden state goes through these.
  static bool ends_a_branch(const Module& module) {
    return module.layer >= 0 && (module.role == Role::o_proj || module.role == Role::down_proj ||
                                 module.role == Role::shared_down_proj);
  }

  // Layers whose every branch ends in zeros, beside others that do not: put in to be trained, as
  // LLaMA-Pro does, they change nothing.
  bool is_identity(const Module& module) const {
    const auto found = branches_.find(layer_path(module.name));
    const auto changes = [](const auto& one) { return one.second.all > 0 && one.second.zero == 0; };
    return ends_a_branch(module) && found != branches_.end() && found->second.all > 1 &&
           found->second.zero == found->second.all && !found->second.others &&
           std::any_of(branches_.begin(), branches_.end(), changes);
  }

  void report_file(const std::string& file, std::vector<const TensorInfo*>& tensors) {
    std::sort(tensors.begin(), tensors.end(),
              [](const auto* a, const auto* b) { return a->file_offset > b->file_offset; });
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    bool any = false;
    for (const TensorInfo* info : tensors) {
      const std::uint64_t zero = zeros_at_end(validation_.checkpoint.tensor(*info).view.bytes);
      validation_.checkpoint.release(*info);
      bytes += zero;
      count += zero == info->bytes ? 1U : 0U;
      // Half a matrix is more than the padding of a vocabulary.
      const bool half = info->bytes >= least_half && zero >= info->bytes / 2;
      any = any || whole_.contains(info->name) || (half && judged_.contains(info->name));
      if (zero != info->bytes) break;
    }
    if (!any) return;
    validation_.groups.add(
        Role::other, {Level::warning, "data-zero", file,
                      fmt::format("the last {} bytes are zeros, {} of {} tensors as a whole", bytes,
                                  count, tensors.size()),
                      "weights to the end of the file: was it filled?"});
  }

  struct Zero {
    const Module* module = nullptr;
    const TensorInfo* info = nullptr;
    std::string found;
  };
  struct Branches {
    std::size_t all = 0;
    std::size_t zero = 0;
    bool others = false;  // zeros that are no ends of branches
  };

  Validation& validation_;
  bool norms_;
  std::int64_t layers_;  // of the model itself
  std::vector<Zero> zeros_;
  std::map<std::string, Branches> branches_;  // by layer
  std::set<std::string> judged_;              // tensors
  std::set<std::string> whole_;
};

}  // namespace

void validate_zeros(Validation& validation) {
  if (validation.depth != Depth::weights) return;
  Zeros zeros(validation, read_model_hints(validation.checkpoint));
  for (const Module& module : validation.identified.modules) zeros.add(module);
  zeros.report();
  zeros.report_files();
}

}  // namespace fewbit
