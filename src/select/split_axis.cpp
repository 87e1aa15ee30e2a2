// SPDX-License-Identifier: Apache-2.0
#include "select/split_axis.hpp"

#include <numeric>

#include "checkpoint/gguf_types.hpp"

namespace fewbit {
namespace {

SplitAxis::Along axis_of(Role role) {
  switch (role) {
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
    case Role::gate_proj:
    case Role::up_proj:
    case Role::gate_up_proj:
    case Role::shared_gate_proj:
    case Role::shared_up_proj:
    case Role::shared_gate_up_proj:
      return SplitAxis::Along::rows;
    case Role::o_proj:
    case Role::down_proj:
    case Role::shared_down_proj:
      return SplitAxis::Along::columns;
    default:
      return SplitAxis::Along::none;
  }
}

// Codes that fill whole 32-bit words.
std::int64_t codes_of_words(DType weight) {
  const int bits = dtype_bits(weight);
  return bits > 0 ? 32 / std::gcd(32, bits) : 1;
}

// Rows of one packed word or byte.
std::int64_t packed_rows(const Scheme& scheme) {
  switch (scheme.packing) {
    case Packing::nibbles_n:
      return 2;
    case Packing::words_n:
      return codes_of_words(scheme.weight);
    case Packing::shorts_gemv:
      return 4;
    default:
      // Zero points are packed along the rows even where the weights are not.
      return scheme.zero_points && dtype_bits(scheme.weight) < 8 ? codes_of_words(scheme.weight)
                                                                 : 1;
  }
}

std::int64_t packed_columns(const Scheme& scheme) {
  switch (scheme.packing) {
    case Packing::nibbles_k:
      return 2;
    case Packing::words_row:
    case Packing::words_k:
    case Packing::words_k_minus:
    case Packing::words_gemv:
      return codes_of_words(scheme.weight);
    case Packing::blocks:
      return 32;
    default:
      return 1;
  }
}

std::int64_t block_elements(const Scheme& scheme) {
  const auto types = gguf_types_of(*scheme.ggml_type);
  return !types.empty() && types.front().elements > 0 ? types.front().elements : 1;
}

struct Unit {
  std::int64_t size = 1;
  std::string_view name;
};

Unit unit_of(std::int64_t shared, std::string_view shared_name, std::int64_t packed) {
  const std::int64_t scale = shared > 0 ? shared : 1;
  const std::int64_t size = std::lcm(scale, packed);
  return {.size = size, .name = size == scale ? shared_name : "packed words"};
}

Granularity grid_of(const Scheme& scheme) {
  return scheme.scale ? scheme.scale->granularity : Granularity{};
}

Unit row_unit(const Scheme& scheme) {
  return unit_of(grid_of(scheme).rows, "blocks", packed_rows(scheme));
}

Unit column_unit(const Scheme& scheme) {
  if (scheme.ggml_type) return unit_of(block_elements(scheme), "blocks", 1);
  const Granularity grid = grid_of(scheme);
  // With act-order any column may be in any group: only words must stay whole.
  return unit_of(scheme.act_order == ActOrder::group ? 1 : grid.cols,
                 grid.rows > 1 ? "blocks" : "groups", packed_columns(scheme));
}

}  // namespace

SplitAxis split_axis(const Module& module) {
  SplitAxis axis;
  if (!module.unreadable.empty() || module.layer < 0 || module.n < 1 || module.k < 1) return axis;
  axis.along = axis_of(module.role);
  if (axis.along == SplitAxis::Along::none) return axis;
  const bool rows = axis.along == SplitAxis::Along::rows;
  const Unit unit = rows ? row_unit(module.scheme) : column_unit(module.scheme);
  axis.unit = unit.size;
  axis.unit_name = unit.name;
  if (rows) {
    const bool halves =
        module.role == Role::gate_up_proj || module.role == Role::shared_gate_up_proj;
    axis.size = halves ? module.n / 2 : module.n;
  } else {
    axis.size = module.k;
    axis.whole_scales = module.scheme.act_order == ActOrder::group;
  }
  return axis;
}

bool is_cut(const Module& module) {
  return module.layer >= 0 && axis_of(module.role) != SplitAxis::Along::none;
}

std::int64_t feature_unit(const Scheme& gate_up, const Scheme& down) {
  return std::lcm(row_unit(gate_up).size, column_unit(down).size);
}

}  // namespace fewbit
