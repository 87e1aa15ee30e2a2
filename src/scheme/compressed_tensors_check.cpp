// SPDX-License-Identifier: Apache-2.0
// Where a compressed-tensors config and the tensors contradict each other. The tensors win.
#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "scheme/compressed_tensors_config.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/nibble_types.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/reader.hpp"
#include "scheme/scale_sharing.hpp"
#include "scheme/taken_matrices.hpp"

namespace fewbit {
namespace {

// The format that writes such a scheme.
std::string_view format_of(const Scheme& scheme) {
  const bool e8m0 = scheme.scale && scheme.scale->dtype == DType::f8_e8m0;
  if (scheme.packing == Packing::words_row) return "pack-quantized";
  if (scheme.weight == DType::i8) return "int-quantized";
  if (scheme.weight == DType::f4_e2m1 || scheme.weight == DType::i4) {
    return e8m0 ? "mxfp4-pack-quantized" : "nvfp4-pack-quantized";
  }
  return e8m0 ? "mxfp8-quantized" : "float-quantized";
}

bool is_floating(DType dtype) {
  return dtype != DType::i4 && dtype != DType::i8 && !dtype_name(dtype).starts_with("u");
}

// The tensors outrank this config only as far as they are its own.
class Check {
 public:
  Check(const Inventory& inventory, const CtConfig& config, FindingGroups& groups)
      : inventory_(inventory),
        config_(config),
        groups_(groups),
        kept_(inventory.declared),
        taken_(inventory) {}

  void run(const Draft& draft) {
    const Module& module = draft.module;
    const bool quantized = module.scheme.producer == Producer::compressed_tensors;
    if (!quantized && module.scheme.quantized()) return;
    const CtGroup* group = config_.group_of(module);
    const bool expected = group != nullptr && group->weights.has_value();
    const bool codes = quantized && dtype_bits(module.scheme.weight) < 16;
    if (codes && !expected && !config_.groups().empty()) {
      add(module, Level::warning, "config-excludes-quantized",
          "quantized tensors: " + module.evidence,
          config_.where() + " does not expect it to be quantized");
    }
    const auto level =
        expected ? taken_.level(draft, config_.is_named(module), false) : std::nullopt;
    if (level) {
      add(module, *level, "config-expects-quantized", "plain tensors: " + module.evidence,
          fmt::format("{} {} quantizes it and ignore does not list it", config_.where(),
                      group->name));
    }
    if (quantized && expected && module.unreadable.empty()) compare(draft, *group);
    if (quantized && module.unreadable.empty()) compare_kept_type(module);
    if (quantized && draft.has("packed") && draft.has("scale")) {
      add(module, Level::warning, "packed-experts-suspect",
          "parts named _packed, _scale and _shape",
          "names that loaders map; a release of llm-compressor wrote wrong values under these");
    }
  }

 private:
  void add(const Module& module, Level level, const char* rule, std::string found,
           std::string expected) {
    groups_.add(module.role, {level, rule, module.name, std::move(found), std::move(expected)});
  }

  void compare(const Draft& draft, const CtGroup& group) {
    const Module& module = draft.module;
    const Scheme& scheme = module.scheme;
    const CtArgs& args = *group.weights;
    const auto differs = [&](const char* rule, const std::string& says) {
      add(module, Level::warning, rule,
          fmt::format("{} {} says {}", config_.where(), group.name, says),
          fmt::format("{}, as the tensors say", scheme_text(scheme)));
    };
    const std::string_view format = format_of(scheme);
    if (!group.format.empty() && group.format != format && group.format != "naive-quantized") {
      differs("config-format", "format " + quote(group.format));
    }
    const int bits = dtype_bits(scheme.weight);
    // Bytes of the naive format hold narrower codes too.
    const bool in_bytes = scheme.weight == DType::i8 && group.format == "naive-quantized";
    const bool fits = in_bytes ? args.bits <= bits : args.bits == bits;
    if ((args.bits_usable && !fits) || args.floating != is_floating(scheme.weight)) {
      differs("config-bits",
              fmt::format("{} of {} bits", args.floating ? "float" : "int", args.bits));
    }
    const std::int64_t cols = scheme.scale->granularity.cols;
    const bool grouped = scheme.scale->granularity.rows == 1 && cols > 0;
    // One group a row is a scale a row.
    const bool one = !grouped && args.group_size && *args.group_size >= module.k;
    if (args.group_size && !one && args.group_size != (grouped ? cols : 0)) {
      differs("config-group-size", fmt::format("group_size {}", *args.group_size));
    }
    if (!sharing_fits({args.strategy, args.group_size, args.block}, module)) {
      differs("config-strategy", fmt::format("strategy {}", quote(args.strategy)));
    }
    const bool groups = scheme.act_order == ActOrder::group;
    if (groups && args.act_order != ActOrder::group) {
      differs("config-actorder", "no actorder of groups, but weight_g_idx is there");
    } else if (!groups && args.act_order == ActOrder::group) {
      differs("config-actorder", "actorder of groups, but weight_g_idx is -1 everywhere");
    }
    if (args.symmetric) compare_zeros(draft, group);
  }

  // AutoRound's data_type, where its export kept it.
  void compare_kept_type(const Module& module) {
    const auto [type, where] = kept_.type_of(module.name);
    if (type.empty() || module.scheme.weight != DType::f4_e2m1) return;
    if (nibble_codes(type) == NibbleCodes::floats) return;
    add(module, Level::warning, "config-format",
        fmt::format("data_type {} by {}", quote(type), where),
        scheme_text(module.scheme) + " by the tensors: " + module.evidence);
  }

  // Exporters may store the zero points of symmetric codes too: all in the middle.
  void compare_zeros(const Draft& draft, const CtGroup& group) {
    const int bits = dtype_bits(draft.module.scheme.weight);
    const bool behind = draft.has("weight_zero_point");
    const TensorInfo* zeros = draft.tensor(behind ? "weight_zero_point" : "zero_point");
    if (zeros == nullptr || is_floating(draft.module.scheme.weight)) return;
    const bool words = zeros->dtype == DType::i32 && (bits == 4 || bits == 8);
    if (!words && zeros->dtype != DType::i8) return;
    const std::byte middle{static_cast<unsigned char>(!words ? 0 : bits == 4 ? 0x88 : 0x80)};
    const PassingTensor stored(*inventory_.checkpoint, *zeros);
    const auto bytes = stored.bytes();
    const auto other =
        std::find_if(bytes.begin(), bytes.end(), [&](std::byte byte) { return byte != middle; });
    if (other == bytes.end()) return;
    groups_.add(draft.module.role,
                {Level::warning, "zeros-not-symmetric", zeros->name, "zero points that are not 0",
                 fmt::format("0 everywhere, as {} {} says symmetric; the stored ones count",
                             config_.where(), group.name)});
  }

  const Inventory& inventory_;
  const CtConfig& config_;
  FindingGroups& groups_;
  NibbleTypes kept_;
  TakenMatrices taken_;
};

}  // namespace

void check_compressed_tensors(Inventory& inventory) {
  const auto config = CtConfig::read(inventory.declared, inventory.drafts);
  if (!config) return;
  std::vector<std::string_view> names;
  names.reserve(inventory.drafts.size());
  FindingGroups groups;
  Check check(inventory, *config, groups);
  for (const Draft& draft : inventory.drafts) {
    names.push_back(draft.module.name);
    check.run(draft);
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
  const ListContext context{says_contradicted(inventory.findings), inventory.num_layers};
  for (Finding& finding : config->findings(names, context)) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
