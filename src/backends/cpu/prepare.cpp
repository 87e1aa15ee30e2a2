// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu/prepared.hpp"

namespace fewbit::cpu {

Result<std::unique_ptr<PreparedLinear>> prepare_linear(IsaLevel level, const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       Executor& /*executor*/) {
  const Kernels& kernels = kernels_of(level);
  const Dims dims{.n = weight.n, .k = weight.k};
  Matrix::Bytes bytes{
      .codes = weight.codes.view.bytes, .scales = {}, .global_scale = weight.global_scale};
  AlignedBuffer packed;
  Tensor plain;
  if (is_f4(weight.scheme)) {
    const auto sizes = packed_sizes(dims);
    if (!sizes) {
      return Error{ErrorCode::limit,
                   fmt::format("packed weights overflow 2^63 bytes at a matrix [{}, {}]", weight.n,
                               weight.k),
                   problem.where};
    }
    const auto codes = static_cast<std::size_t>(sizes->codes);
    FEWBIT_TRY(packed, AlignedBuffer::allocate(codes + static_cast<std::size_t>(sizes->scales)));
    pack_matrix(weight, packed.span().first(codes), packed.span().subspan(codes));
    bytes.codes = packed.span().first(codes);
    bytes.scales = packed.span().subspan(codes);
  } else {
    plain = weight.codes;
  }
  const Matrix matrix = Matrix::open(kernels, weight.scheme, dims, bytes);
  return std::unique_ptr<PreparedLinear>(
      std::make_unique<Linear>(kernels, problem, matrix, std::move(packed), std::move(plain)));
}

PreparedInfo Linear::info() const {
  return {.backend = kernels_.backend,
          .layout = layout_name(problem_.weight),
          .owned_bytes = packed_.size(),
          .mapped_bytes = plain_.view.bytes.size()};
}

}  // namespace fewbit::cpu
