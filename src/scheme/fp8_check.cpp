// SPDX-License-Identifier: Apache-2.0
// Where the config and FP8 tensors contradict each other, and what shapes of scales leave open.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/checked.hpp"
#include "core/quote.hpp"
#include "scheme/finding_groups.hpp"
#include "scheme/fp8_config.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/qkv_rows.hpp"
#include "scheme/reader.hpp"
#include "scheme/scale_fit.hpp"
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

bool is_f8(const Scheme& scheme) {
  return dtype_name(scheme.weight).starts_with("f8_") && scheme.quantized();
}

bool is_block(const Granularity& granularity) {
  return granularity.rows > 1 && granularity.cols > 0;
}

std::string block_text(const Granularity& block) {
  return fmt::format("{}x{}", block.rows, block.cols);
}

std::string granularity_text(const Granularity& grid) {
  if (is_block(grid)) return block_text(grid);
  if (grid == Granularity{0, 1}) return "a scale a column";
  if (grid.rows > 1) return fmt::format("a scale for {} rows", grid.rows);
  return grid.rows == 1 ? "a scale a row" : "one scale";
}

// Rows of scales as stored, and the fit behind them.
struct Stored {
  std::string name;
  std::int64_t rows = 0;
  ScaleFit fit;
};

std::optional<Stored> stored_scale(const Draft& draft, const Granularity& block) {
  const Module& module = draft.module;
  const auto names = scale_parts(module);
  if (names.empty() || !module.scheme.scale) return std::nullopt;
  const TensorInfo& scale = *draft.tensor(names.front());
  const auto fit = fit_scale_as({module.experts, module.n, module.k, module.transposed},
                                scale.shape, module.scheme.scale->granularity, block);
  if (!fit) return std::nullopt;
  return Stored{scale.name, fit->rows, *fit};
}

// Families whose fused matrix is [q; k; v], whoever wrote it.
bool is_ordered_qkv(std::string_view model_type, std::string_view module) {
  constexpr std::pair<std::string_view, std::string_view> known[] = {
      {"bailing", "query_key_value"}, {"chatglm", "query_key_value"}, {"phi3", "qkv_proj"}};
  return std::any_of(std::begin(known), std::end(known), [&](const auto& one) {
    return model_type.starts_with(one.first) && module.ends_with(one.second);
  });
}

// What the number of rows means for those who fuse or split the matrix.
void check_rows(std::string_view model_type, const Draft& draft, const Stored& stored,
                FindingGroups& groups) {
  const Module& module = draft.module;
  const Granularity& grid = module.scheme.scale->granularity;
  // Pieces of an odd height leave no two rows with one scale in all of them.
  if (!is_block(grid) && stored.fit.pieces <= 1) return;
  if (stored.fit.pieces > 1) {
    // A matrix of one projection has rarely been put together.
    const bool single = is_projection(module.role) && module.role != Role::gate_up_proj;
    groups.add(module.role,
               {single ? Level::warning : Level::info, "scale-pieces", stored.name,
                fmt::format("{} rows of scales for {} rows", stored.rows, module.n),
                fmt::format("read as {} pieces of {} rows, each in blocks of {}", stored.fit.pieces,
                            module.n / stored.fit.pieces, stored.fit.block_rows)});
  }
  if (is_fused_qkv(module) && !is_ordered_qkv(model_type, module.name)) {
    groups.add(
        module.role,
        {Level::warning, "fused-order-unknown", module.name,
         fmt::format("fused q, k and v, {} rows of scales for {} rows", stored.rows, module.n),
         "nothing says whether rows are [q; k; v] or [q|k|v] of one shard after another"});
  }
  const bool half = module.role == Role::gate_proj || module.role == Role::up_proj;
  if (half && stored.fit.pieces == 1 && module.n % grid.rows != 0) {
    groups.add(module.role,
               {Level::info, "scale-block-ragged", module.name,
                fmt::format("{} rows, the last block has {}", module.n, module.n % grid.rows),
                fmt::format("whole blocks of {}, where gate and up are to share one grid of scales",
                            grid.rows)});
  }
}

void check_block(const Fp8Config& config, const Module& module, const Stored& stored,
                 FindingGroups& groups) {
  Granularity grid = module.scheme.scale->granularity;
  if (stored.fit.pieces > 1) grid.rows = stored.fit.block_rows;
  if (!config.block || grid == *config.block) return;
  // Groups are told by the tensors alone, and one block is as large as the matrix or larger.
  const bool whole = grid.cols == 0 || grid == Granularity{0, 1};
  const bool one = config.block->rows >= module.n && config.block->cols >= module.k;
  if (!is_block(grid) && (!whole || one)) return;
  groups.add(module.role,
             {Level::warning, "config-block-size", module.name,
              fmt::format("{} says blocks of {}", config.where, block_text(*config.block)),
              granularity_text(grid) + ", as the scales say"});
}

// "torch.float8_e4m3fn", "float8_e4m3", "e4m3": one format.
std::string_view format_name(std::string_view text) {
  for (const std::string_view prefix : {"torch.", "float8_"}) {
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  }
  return text;
}

void check_format(const Fp8Config& config, const Module& module, FindingGroups& groups) {
  const bool e5m2 =
      module.scheme.weight == DType::f8_e5m2 || module.scheme.weight == DType::f8_e5m2fnuz;
  if (config.format.empty() || format_name(config.format).starts_with(e5m2 ? "e5m2" : "e4m3"))
    return;
  groups.add(module.role,
             {Level::warning, "config-fp8-format", module.name,
              fmt::format("{} says fmt {}", config.where, quote(config.format)),
              fmt::format("{}, as the tensor says", dtype_name(module.scheme.weight))});
}

void check_expert_dtype(const Fp8Config& config, const Module& module, FindingGroups& groups) {
  if (config.expert_dtype.empty() || module.expert == -1 || !module.scheme.quantized()) return;
  const bool says_fp8 = config.expert_dtype == "fp8";
  const bool says_fp4 = config.expert_dtype == "fp4";
  const bool is_fp4 = module.scheme.weight == DType::f4_e2m1;
  if ((says_fp8 && is_f8(module.scheme)) || (says_fp4 && is_fp4)) return;
  groups.add(module.role, {Level::warning, "config-expert-dtype", module.name,
                           fmt::format("expert_dtype is {}", quote(config.expert_dtype)),
                           fmt::format("{}, as the tensors say", scheme_text(module.scheme))});
}

}  // namespace

void check_fp8(Inventory& inventory) {
  const std::optional<Fp8Config> config = read_fp8_config(inventory.declared);
  const Granularity block = config ? config->block.value_or(usual_block) : usual_block;
  FindingGroups groups;
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    if (config) check_expert_dtype(*config, module, groups);
    if (!is_f8(module.scheme) || !module.scheme.scale || !module.unreadable.empty()) continue;
    const auto stored = stored_scale(draft, block);
    if (!stored) continue;
    check_rows(inventory.model_type, draft, *stored, groups);
    if (!config) continue;
    check_block(*config, module, *stored, groups);
    check_format(*config, module, groups);
  }
  if (config && !config->bad_block.empty()) {
    inventory.findings.push_back({Level::warning, "config-block-size", config->where,
                                  config->bad_block, "two sizes, of rows and columns"});
  }
  if (config && !config->scale_format.empty() && config->scale_format != "ue8m0" &&
      config->scale_format != "float" && config->scale_format != "float32") {
    inventory.findings.push_back({Level::warning, "config-value", config->where,
                                  "scale_fmt " + quote(config->scale_format),
                                  "ue8m0, float or none; scales are read as they are stored"});
  }
  for (Finding& finding : std::move(groups).take()) {
    inventory.findings.push_back(std::move(finding));
  }
}

}  // namespace fewbit
