// SPDX-License-Identifier: Apache-2.0
// A block holds the bytes of its codes as the rows have them, after those of its scale: copies of a
// fixed size.
#include "layout/prepare_q2.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "layout/check_tensor.hpp"
#include "layout/parallel_ranges.hpp"
#include "layout/q2_blocks.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

Result<void> check_sizes(Dims dims, std::int64_t group) {
  FEWBIT_TRY(check_extent("n", dims.n));
  FEWBIT_TRY(check_extent("k", dims.k));
  if (group != 64 && group != 128) {
    return bad("group", std::to_string(group) + ", expected 64 or 128");
  }
  if (dims.k % group == 0) return {};
  return bad(
      "k", std::to_string(dims.k) + ", expected a multiple of the group, " + std::to_string(group));
}

// Both sides of `count` blocks.
template <std::int64_t group>
struct Blocks {
  using Layout = Q2Blocks<group>;
  static constexpr std::int64_t codes_bytes = Layout::block_bytes - Layout::scale_bytes;

  template <class Copy>
  static void each(std::int64_t count, Executor& executor, const Copy& copy) {
    parallel_ranges(executor, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        copy(i * Layout::block_bytes, i * Layout::scale_bytes, i * codes_bytes);
      }
    });
  }
  static void pack(std::int64_t count, const Q2Rows& rows, std::byte* out, Executor& executor) {
    const std::byte* const scales = rows.scales.bytes.data();
    const std::byte* const codes = rows.codes.bytes.data();
    each(count, executor, [=](std::int64_t block, std::int64_t scale, std::int64_t code) {
      std::memcpy(out + block, scales + scale, Layout::scale_bytes);
      std::memcpy(out + block + Layout::scale_bytes, codes + code, codes_bytes);
    });
  }
  static void unpack(std::int64_t count, const std::byte* in, std::byte* codes, std::byte* scales,
                     Executor& executor) {
    each(count, executor, [=](std::int64_t block, std::int64_t scale, std::int64_t code) {
      std::memcpy(scales + scale, in + block, Layout::scale_bytes);
      std::memcpy(codes + code, in + block + Layout::scale_bytes, codes_bytes);
    });
  }
};

}  // namespace

Result<void> pack_q2(const Q2Rows& rows, Dims dims, std::int64_t group, std::span<std::byte> out,
                     Executor& executor) {
  FEWBIT_TRY(check_sizes(dims, group));
  const std::int64_t groups = dims.k / group;
  FEWBIT_TRY(check_tensor("codes", rows.codes, DType::u8, {dims.n, dims.k / 4}));
  FEWBIT_TRY(check_tensor("scales", rows.scales, DType::f16, {dims.n, groups}));
  const std::int64_t bytes = dims.n * groups * (2 + group / 4);
  if (std::ssize(out) != bytes) {
    return bad("result", std::to_string(out.size()) + " bytes, expected " + std::to_string(bytes));
  }
  group == 64 ? Blocks<64>::pack(dims.n * groups, rows, out.data(), executor)
              : Blocks<128>::pack(dims.n * groups, rows, out.data(), executor);
  return {};
}

Result<Tensor> pack_q2(const Q2Rows& rows, Dims dims, std::int64_t group, Executor& executor) {
  FEWBIT_TRY(check_sizes(dims, group));
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(DType::u8, {dims.n, dims.k / group, 2 + group / 4}));
  FEWBIT_TRY(pack_q2(rows, dims, group, out.bytes, executor));
  return out.tensor;
}

Result<Q2RowsResult> unpack_q2(const TensorView& blocks, Dims dims, std::int64_t group,
                               Executor& executor) {
  FEWBIT_TRY(check_sizes(dims, group));
  const std::int64_t groups = dims.k / group;
  FEWBIT_TRY(check_tensor("blocks", blocks, DType::u8, {dims.n, groups, 2 + group / 4}));
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, {dims.n, dims.k / 4}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(DType::f16, {dims.n, groups}));
  const auto unpack = group == 64 ? Blocks<64>::unpack : Blocks<128>::unpack;
  unpack(dims.n * groups, blocks.bytes.data(), codes.bytes.data(), scales.bytes.data(), executor);
  return Q2RowsResult{.codes = codes.tensor, .scales = scales.tensor};
}

}  // namespace fewbit
