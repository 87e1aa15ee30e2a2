// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_marlin.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/float_convert.hpp"
#include "layout/marlin_codes.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

// One matrix of all experts.
struct Part {
  std::string name;
  const MarlinInput& input;
  const MarlinMatrix& matrix;
  const MarlinMatrixPlan& plan;
  std::int64_t experts;
  std::int64_t scale_k;  // of the rule for the order of scales

  PaddedMatrix codes(std::span<const std::int32_t> order) const {
    return {.from = plan.stored, .to = plan.dims, .parts_n = plan.parts_n, .order = order};
  }
  PaddedMatrix groups() const { return rows(plan.stored_groups, plan.groups); }
  PaddedMatrix rows(std::int64_t stored, std::int64_t padded) const {
    return {.from = {.n = plan.stored.n, .k = stored},
            .to = {.n = plan.dims.n, .k = padded},
            .parts_n = plan.parts_n,
            .order = {}};
  }
};

// An expert's share of a tensor of all.
template <class Byte>
std::span<Byte> share(std::span<Byte> all, std::int64_t experts, std::int64_t expert) {
  const std::size_t bytes = all.size() / static_cast<std::size_t>(experts);
  return all.subspan(static_cast<std::size_t>(expert) * bytes, bytes);
}

// Calls fn(expert) for all.
template <class Fn>
void each_expert(std::int64_t experts, Executor& executor, const Fn& fn) {
  parallel_ranges(executor, experts, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t expert = begin; expert < end; ++expert) fn(expert);
  });
}

// Rows by group, those of one group as stored; g_idx then never falls.
struct SortedGroups {
  OwnedTensor g_idx;
  OwnedTensor order;
};

Result<SortedGroups> sort_groups(const Part& part) {
  const std::int64_t k = part.plan.stored.k;
  FEWBIT_TRY(OwnedTensor g_idx, allocate_tensor(DType::i32, {part.experts, k}));
  FEWBIT_TRY(OwnedTensor order, allocate_tensor(DType::i32, {part.experts, k}));
  std::vector<std::int32_t> groups(static_cast<std::size_t>(k));
  std::vector<std::int32_t> rows(groups.size());
  for (std::int64_t expert = 0; expert < part.experts; ++expert) {
    const auto in = share(part.matrix.g_idx->bytes, part.experts, expert);
    std::memcpy(groups.data(), in.data(), in.size());
    for (const std::int32_t group : groups) {
      if (group < 0 || group >= part.plan.stored_groups) {
        return Error{ErrorCode::invalid_argument,
                     "expert " + std::to_string(expert) + " names group " + std::to_string(group) +
                         ", expected 0 to " + std::to_string(part.plan.stored_groups - 1),
                     part.name + " g_idx"};
      }
    }
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::stable_sort(
        rows, {}, [&](std::int32_t row) { return groups[static_cast<std::size_t>(row)]; });
    std::ranges::sort(groups);
    std::memcpy(share(order.bytes, part.experts, expert).data(), rows.data(), in.size());
    std::memcpy(share(g_idx.bytes, part.experts, expert).data(), groups.data(), in.size());
  }
  return SortedGroups{.g_idx = std::move(g_idx), .order = std::move(order)};
}

std::span<const std::int32_t> order_of(const Part& part, const Tensor& order, std::int64_t expert) {
  if (order.empty()) return {};
  const auto bytes = share(order.view.bytes, part.experts, expert);
  return {reinterpret_cast<const std::int32_t*>(bytes.data()), bytes.size() / 4};
}

// How many codes were lost.
std::int64_t pack_fp8_words(const Part& part, std::int64_t expert, std::span<std::byte> tiles) {
  MarlinFp8Job job{.source = part.input.codes.source,
                   .rules = part.input.rules,
                   .zeros = {.words = {}, .groups = part.plan.stored_groups}};
  if (part.matrix.zeros) job.zeros.words = share(part.matrix.zeros->bytes, part.experts, expert);
  return marlin_repack_fp8(job, part.codes({}),
                           share(part.matrix.words.bytes, part.experts, expert), tiles);
}

Result<void> refuse_lost(const Part& part, const std::vector<std::int64_t>& lost) {
  for (std::size_t expert = 0; expert < lost.size(); ++expert) {
    if (lost[expert] == 0) continue;
    return Error{ErrorCode::invalid_argument,
                 std::to_string(lost[expert]) + " codes of expert " + std::to_string(expert) +
                     " are not -8 to 7 from their zero points, as FP8 kernels need them",
                 part.name + " words"};
  }
  return {};
}

Result<Tensor> pack_words(const Part& part, const Tensor& order, Executor& executor) {
  const MarlinCodes& codes = part.input.codes;
  const Dims d = part.plan.dims;
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(DType::i32, {part.experts, d.k / 16, d.n * codes.bits / 2}));
  std::vector<std::int64_t> lost(static_cast<std::size_t>(part.experts));
  each_expert(part.experts, executor, [&](std::int64_t expert) {
    const auto tiles = share(out.bytes, part.experts, expert);
    if (codes.activation == MarlinActivation::f8_e4m3) {
      lost[static_cast<std::size_t>(expert)] = pack_fp8_words(part, expert, tiles);
    } else {
      marlin_repack(codes, part.codes(order_of(part, order, expert)),
                    share(part.matrix.words.bytes, part.experts, expert), tiles);
    }
  });
  FEWBIT_TRY(refuse_lost(part, lost));
  return out.tensor;
}

Result<Tensor> pack_zeros(const Part& part, Executor& executor) {
  const std::int64_t words = part.plan.dims.n * part.input.codes.bits / 32;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::i32, {part.experts, part.plan.groups, words}));
  each_expert(part.experts, executor, [&](std::int64_t expert) {
    marlin_zero_points(part.input.codes, part.groups(),
                       share(part.matrix.zeros->bytes, part.experts, expert),
                       share(out.bytes, part.experts, expert));
  });
  return out.tensor;
}

Result<Tensor> pack_bias(const Part& part, Executor& executor) {
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(part.matrix.bias->dtype, {part.experts, part.plan.dims.n}));
  each_expert(part.experts, executor, [&](std::int64_t expert) {
    marlin_scales(ScaleOrder::single, part.rows(1, 1),
                  share(part.matrix.bias->bytes, part.experts, expert),
                  share(out.bytes, part.experts, expert));
  });
  return out.tensor;
}

std::uint16_t load_u16(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

float to_f32(DType dtype, std::uint16_t bits) {
  return dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

std::uint16_t from_f32(DType dtype, float value) {
  return dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
}

// FP8 kernels decode codes 2^-9 too small.
Result<void> lift_fp8_scales(const Part& part, DType dtype, std::span<std::byte> scales) {
  for (std::size_t i = 0; i < scales.size(); i += 2) {
    const float scale = to_f32(dtype, load_u16(scales.data() + i));
    const std::uint16_t lifted = from_f32(dtype, scale * marlin_fp8_scale_lift);
    if (std::isfinite(scale) && !std::isfinite(to_f32(dtype, lifted))) {
      return Error{ErrorCode::invalid_argument,
                   std::to_string(scale) + " times 512 is beyond " +
                       std::string(dtype_name(dtype)) + ", as FP8 kernels need it",
                   part.name + " scales"};
    }
    std::memcpy(scales.data() + i, &lifted, sizeof lifted);
  }
  return {};
}

Result<void> pack_scales(const Part& part, MarlinMatrixResult& result, Executor& executor) {
  const MarlinActivation activation = part.input.codes.activation;
  const DType dtype = part.matrix.scales.dtype;
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(dtype, {part.experts, part.plan.groups, part.plan.dims.n}));
  // Kernels look up the group of a sorted column in the grouped order, be it the only one.
  const bool looked_up =
      part.input.rules == MarlinRules::exact && part.matrix.sorted(part.input.row_order);
  const ScaleOrder order =
      looked_up ? ScaleOrder::grouped
                : marlin_scale_order(part.scale_k, part.input.group_size, activation);
  each_expert(part.experts, executor, [&](std::int64_t expert) {
    marlin_scales(order, part.groups(), share(part.matrix.scales.bytes, part.experts, expert),
                  share(out.bytes, part.experts, expert));
  });
  if (activation == MarlinActivation::f8_e4m3) {
    FEWBIT_TRY(lift_fp8_scales(part, dtype, out.bytes));
  }
  if (activation == MarlinActivation::int8 && part.plan.groups > 1) {
    result.activation_factor = marlin_act_int8_scales(dtype, out.bytes);
  }
  result.scales = out.tensor;
  return {};
}

Result<MarlinMatrixResult> prepare_part(const Part& part, Executor& executor) {
  MarlinMatrixResult result;
  if (part.matrix.sorted(part.input.row_order)) {
    FEWBIT_TRY(const SortedGroups sorted, sort_groups(part));
    result.g_idx = sorted.g_idx.tensor;
    result.order = sorted.order.tensor;
  }
  if (!part.matrix.without_words) {
    FEWBIT_TRY(result.words, pack_words(part, result.order, executor));
  }
  FEWBIT_TRY(pack_scales(part, result, executor));
  if (part.matrix.zeros) {
    FEWBIT_TRY(result.zeros, pack_zeros(part, executor));
  }
  if (part.matrix.bias) {
    FEWBIT_TRY(result.bias, pack_bias(part, executor));
  }
  return result;
}

// The k by which vLLM or the matrix decides about the order of scales.
struct ScaleK {
  std::int64_t w13;
  std::int64_t w2;
};
ScaleK scale_k(const MarlinInput& input, const MarlinPlan& plan) {
  if (input.rules == MarlinRules::exact) return {plan.w13.dims.k, plan.w2.dims.k};
  if (input.codes.source == WordSource::awq) {
    return {input.intermediate_size, input.intermediate_size};
  }
  // Of all groups, which in act-order may be those of more columns than there are.
  const bool grouped = input.group_size != -1;
  return {input.intermediate_size, grouped ? plan.w2.groups * input.group_size : plan.w2.dims.k};
}

}  // namespace

Result<MarlinResult> prepare_marlin(const MarlinInput& input, Executor& executor) {
  FEWBIT_TRY(const MarlinPlan plan, plan_marlin(input));
  const ScaleK k = scale_k(input, plan);
  MarlinResult result;
  FEWBIT_TRY(result.w13,
             prepare_part({"w13", input, input.w13, plan.w13, plan.experts, k.w13}, executor));
  FEWBIT_TRY(result.w2,
             prepare_part({"w2", input, input.w2, plan.w2, plan.experts, k.w2}, executor));
  return result;
}

float marlin_act_int8_scales(DType dtype, std::span<std::byte> scales) {
  float largest = -INFINITY;
  for (std::size_t i = 0; i < scales.size(); i += 2) {
    largest = std::max(largest, to_f32(dtype, load_u16(scales.data() + i)));
  }
  for (std::size_t i = 0; i < scales.size(); i += 2) {
    const float scale = to_f32(dtype, load_u16(scales.data() + i));
    const float share_of_largest = to_f32(dtype, from_f32(dtype, scale / largest));
    const float scaled = to_f32(dtype, from_f32(dtype, share_of_largest * 4096.0F));
    const float whole = std::isnan(scaled) ? 0.0F : std::nearbyint(scaled);
    const auto integer = static_cast<std::int16_t>(std::clamp(whole, -32768.0F, 32767.0F));
    std::memcpy(scales.data() + i, &integer, sizeof integer);
  }
  return largest / 4096.0F;
}

}  // namespace fewbit
