// SPDX-License-Identifier: Apache-2.0
// The checks of prepare_marlin.
#include <string>
#include <utility>

#include "core/checked.hpp"
#include "layout/check_tensor.hpp"
#include "layout/prepare_marlin.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

Error unsupported(std::string where, std::string what) {
  return {ErrorCode::unsupported, std::move(what), std::move(where)};
}

Result<void> check_words(const std::string& name, const MarlinInput& input, const TensorView& words,
                         std::int64_t experts, Dims stored) {
  const std::int64_t per_word = 32 / input.codes.bits;
  const Shape shape = input.codes.source == WordSource::gptq
                          ? Shape{experts, stored.k / per_word, stored.n}
                          : Shape{experts, stored.k, stored.n / per_word};
  return check_tensor(name + " words", words, DType::i32, shape);
}

Result<void> check_scales(const std::string& name, const MarlinMatrix& matrix,
                          const MarlinMatrixPlan& plan, std::int64_t experts) {
  const DType dtype = matrix.scales.dtype;
  if (dtype != DType::f16 && dtype != DType::bf16) {
    return bad(name + " scales",
               "dtype " + std::string(dtype_name(dtype)) + ", expected f16 or bf16");
  }
  FEWBIT_TRY(check_tensor(name + " scales", matrix.scales, dtype,
                          {experts, plan.stored_groups, plan.stored.n}));
  if (!matrix.bias) return {};
  return check_tensor(name + " bias", *matrix.bias, dtype, {experts, plan.stored.n});
}

Result<void> check_rest(const std::string& name, const MarlinInput& input,
                        const MarlinMatrix& matrix, const MarlinMatrixPlan& plan,
                        std::int64_t experts) {
  if (matrix.zeros) {
    const std::int64_t per_word = 32 / input.codes.bits;
    FEWBIT_TRY(check_tensor(name + " zeros", *matrix.zeros, DType::i32,
                            {experts, plan.stored_groups, plan.stored.n / per_word}));
  }
  if (!matrix.sorted(input.row_order)) return {};
  return check_tensor(name + " g_idx", *matrix.g_idx, DType::i32, {experts, plan.stored.k});
}

Result<void> check_group(const std::string& name, const MarlinInput& input,
                         const MarlinMatrix& matrix, const MarlinMatrixPlan& plan) {
  const std::int64_t group_size = input.group_size;
  const std::int64_t k = plan.stored.k;
  if (group_size == -1) return {};
  if (matrix.sorted(input.row_order)) {
    if (plan.stored_groups >= ceil_div(k, group_size)) return {};
    return bad(name + " scales",
               std::to_string(plan.stored_groups) + " groups, expected at least " +
                   std::to_string(ceil_div(k, group_size)) + " for k " + std::to_string(k) +
                   " in groups of " + std::to_string(group_size));
  }
  if (k % group_size == 0) return {};
  return bad(name, "k is " + std::to_string(k) + " in groups of " + std::to_string(group_size) +
                       ", expected a group size that divides it, or -1");
}

Result<void> check_matrix(const std::string& name, const MarlinInput& input,
                          const MarlinMatrix& matrix, const MarlinMatrixPlan& plan,
                          std::int64_t experts) {
  const PaddedMatrix map{
      .from = plan.stored, .to = plan.dims, .parts_n = plan.parts_n, .order = {}};
  FEWBIT_TRY(check_marlin_codes(name + " words", input.codes, map));
  if (!matrix.without_words) {
    FEWBIT_TRY(check_words(name, input, matrix.words, experts, plan.stored));
  }
  FEWBIT_TRY(check_scales(name, matrix, plan, experts));
  return check_rest(name, input, matrix, plan, experts);
}

// Sorted columns need no whole groups.
std::int64_t padded_width(const MarlinInput& input) {
  const std::int64_t group_size = input.w2.sorted(input.row_order) ? -1 : input.group_size;
  return marlin_padded_intermediate(input.intermediate_size, group_size);
}

// What no kernel has.
Result<void> check_kinds(const MarlinInput& input) {
  const bool sorted = input.w2.sorted(input.row_order);
  const bool act_order = sorted || input.w13.sorted(input.row_order);
  if (act_order && input.codes.source == WordSource::awq) {
    return unsupported("", "act-order with AWQ words, which have none");
  }
  if (act_order && input.codes.activation != MarlinActivation::bits16) {
    return unsupported("", "act-order with 8-bit activations");
  }
  if (input.codes.activation == MarlinActivation::f8_e4m3 && input.codes.bits != 4) {
    return unsupported(
        "", std::to_string(input.codes.bits) + "-bit codes with FP8 activations, expected 4 bits");
  }
  const std::int64_t padded = padded_width(input);
  if (sorted && padded != input.intermediate_size) {
    return unsupported("intermediate_size", std::to_string(input.intermediate_size) +
                                                " needs padding to " + std::to_string(padded) +
                                                ", which act-order does not allow");
  }
  return {};
}

// In act-order the scales tell: they may be those of more columns than k.
std::int64_t groups_of(const MarlinInput& input, const MarlinMatrix& matrix, std::int64_t k) {
  if (input.group_size == -1) return 1;
  const Shape& scales = matrix.scales.shape;
  const bool told = matrix.sorted(input.row_order) && scales.size() == 3;
  return told ? scales[1] : k / input.group_size;
}

}  // namespace

Result<MarlinPlan> plan_marlin(const MarlinInput& input) {
  FEWBIT_TRY(check_extent("hidden_size", input.hidden_size));
  FEWBIT_TRY(check_extent("intermediate_size", input.intermediate_size));
  if (input.group_size != -1) {
    FEWBIT_TRY(check_extent("group_size", input.group_size));
  }
  FEWBIT_TRY(check_kinds(input));
  const bool words = !input.w13.without_words;
  const Shape& shape = words ? input.w13.words.shape : input.w13.scales.shape;
  if (shape.size() != 3 || shape[0] <= 0) {
    return bad(words ? "w13 words" : "w13 scales",
               "shape " + shape_text(shape) + ", expected three extents, experts first");
  }
  const std::int64_t halves = input.gating == Gating::gated ? 2 : 1;
  const std::int64_t width = input.intermediate_size;
  const std::int64_t padded = padded_width(input);
  MarlinPlan plan;
  plan.experts = shape[0];
  plan.w13 = {.stored = {.n = halves * width, .k = input.hidden_size},
              .dims = {.n = halves * padded, .k = input.hidden_size},
              .stored_groups = groups_of(input, input.w13, input.hidden_size),
              .groups = groups_of(input, input.w13, input.hidden_size),
              .parts_n = halves};
  plan.w2 = {.stored = {.n = input.hidden_size, .k = width},
             .dims = {.n = input.hidden_size, .k = padded},
             .stored_groups = groups_of(input, input.w2, width),
             .groups = groups_of(input, input.w2, padded),
             .parts_n = 1};
  FEWBIT_TRY(check_group("w13", input, input.w13, plan.w13));
  FEWBIT_TRY(check_group("w2", input, input.w2, plan.w2));
  FEWBIT_TRY(check_matrix("w13", input, input.w13, plan.w13, plan.experts));
  FEWBIT_TRY(check_matrix("w2", input, input.w2, plan.w2, plan.experts));
  return plan;
}

}  // namespace fewbit
