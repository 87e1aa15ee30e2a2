// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/prepared.hpp"
#include "canonical/column_order.hpp"
#include "canonical/gguf_exact.hpp"

namespace fewbit::cpu {
namespace {

// Returns the order of the columns, empty for none.
Result<std::vector<std::int32_t>> pack(const WeightForm& form, const QuantizedTensor& weight,
                                       const PackedSpans& to) {
  std::vector<std::int32_t> order;
  FEWBIT_TRY(const QuantizedTensor exact, gguf_exact(weight));
  if (form.ordered) {
    FEWBIT_TRY(order, column_order(exact));
  }
  FEWBIT_TRY(pack_matrix(form, exact, order, to));
  return order;
}

}  // namespace

Result<std::unique_ptr<PreparedLinear>> prepare_linear(const Kernels& kernels,
                                                       const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       Executor& /*executor*/) {
  const Dims dims{.n = weight.n, .k = weight.k};
  const auto form = form_of(weight.scheme);
  if (!form) {
    const Matrix matrix = Matrix::open(
        kernels, weight.scheme, dims, {.codes = weight.codes.view.bytes, .scales = {}, .zeros = {}},
        weight.global_scale);
    return std::unique_ptr<PreparedLinear>(std::make_unique<Linear>(
        kernels, problem, matrix, std::vector<std::int32_t>{}, AlignedBuffer{}, weight.codes));
  }
  const auto sizes = packed_sizes(*form, dims);
  if (!sizes) {
    return Error{
        ErrorCode::limit,
        fmt::format("packed weights overflow 2^63 bytes at a matrix [{}, {}]", weight.n, weight.k),
        problem.where};
  }
  const auto codes = static_cast<std::size_t>(sizes->codes);
  const auto scales = static_cast<std::size_t>(sizes->scales);
  const auto zeros = static_cast<std::size_t>(sizes->zeros);
  FEWBIT_TRY(AlignedBuffer packed, AlignedBuffer::allocate(codes + scales + zeros));
  const PackedSpans to{.codes = packed.span().first(codes),
                       .scales = packed.span().subspan(codes, scales),
                       .zeros = packed.span().subspan(codes + scales)};
  auto order = pack(*form, weight, to);
  if (!order) return Error{order.error().code, order.error().what, problem.where};
  const Matrix matrix = Matrix::open(kernels, weight.scheme, dims,
                                     {.codes = to.codes, .scales = to.scales, .zeros = to.zeros},
                                     weight.global_scale);
  return std::unique_ptr<PreparedLinear>(std::make_unique<Linear>(
      kernels, problem, matrix, std::move(*order), std::move(packed), Tensor{}));
}

PreparedInfo Linear::info() const {
  return {.backend = kernels_.backend,
          .layout = layout_name(problem_.weight),
          .owned_bytes = packed_.size(),
          .mapped_bytes = plain_.view.bytes.size()};
}

}  // namespace fewbit::cpu
