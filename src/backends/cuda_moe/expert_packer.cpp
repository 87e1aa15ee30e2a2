// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/expert_packer.hpp"

#include "backends/cuda_moe/expert_parts.hpp"
#include "kernels/cuda/pack_f4.hpp"

namespace fewbit::cuda {

Result<void> ExpertPacker::pack(const ExpertWeights& expert, int matrix, std::byte* to) {
  switch (format_of(problem_).kind) {
    case CellKind::int4:
    case CellKind::int8:
    case CellKind::ternary:
    case CellKind::nf3:
      return pack_int(expert, matrix, to);
    case CellKind::f8:
    case CellKind::mxfp8:
      return pack_f8(expert, matrix, to);
    default:
      return pack_f4(expert, matrix, to);
  }
}

Result<void> ExpertPacker::check() const {
  if (nan_.size() == 0) return {};
  std::uint32_t nan = 0;
  FEWBIT_TRY(
      device::copy_to_host(std::as_writable_bytes(std::span(&nan, 1)), nan_.data(), stream_));
  FEWBIT_TRY(stream_.synchronize());
  if (nan != 0) return nan_code(problem_);
  return {};
}

Result<void> ExpertPacker::pack_f4(const ExpertWeights& expert, int matrix, std::byte* to) {
  const Dims half = matrix == 0 ? half1(problem_) : half2(problem_);
  const std::int64_t group = format_of(problem_).kind == CellKind::nvfp4 ? 16 : 32;
  const CudaF4Source from = source_of(problem_, expert, matrix);
  const auto codes = static_cast<std::size_t>(half.n * half.k / 2);
  const auto scales = static_cast<std::size_t>(half.n * (half.k / group));
  PackF4Args args;
  args.count = 1;
  args.rows = static_cast<int>(half.n);
  args.depth = static_cast<int>(half.k);
  args.to = reinterpret_cast<std::uint8_t*>(to);
  for (int h = 0; h < 2; ++h) {
    FEWBIT_TRY(args.codes[h], copy(from.codes[h], codes, memory_[matrix][h]));
    FEWBIT_TRY(args.scales[h], copy(from.scales[h], scales, memory_[matrix][2 + h]));
  }
  return device::check(launch_pack_f4(format_of(problem_), args, stream_.handle()),
                       problem_.where + ", packing an expert");
}

Result<void> ExpertPacker::pack_int(const ExpertWeights& expert, int matrix, std::byte* to) {
  FEWBIT_TRY(IntParts parts, int_parts_of(problem_, expert, matrix));
  CudaIntSource& from = parts.source;
  const auto codes = static_cast<std::size_t>(from.rows * from.row_bytes());
  for (int h = 0; h < 2; ++h) {
    auto& memory = memory_[matrix];
    FEWBIT_TRY(from.codes[h], copy(from.codes[h], codes, memory[h]));
    FEWBIT_TRY(const std::uint8_t* const scales,
               copy(reinterpret_cast<const std::uint8_t*>(parts.scales[h].data()),
                    2 * parts.scales[h].size(), memory[2 + h]));
    from.scales[h] = reinterpret_cast<const std::uint16_t*>(scales);
    if (parts.zeros[h].empty()) continue;
    FEWBIT_TRY(from.zeros[h], copy(parts.zeros[h].data(), parts.zeros[h].size(), memory[4 + h]));
  }
  const PackIntArgs args{.first = from, .count = 1, .to = reinterpret_cast<std::uint8_t*>(to)};
  return device::check(launch_pack_int(format_of(problem_).ints, args, stream_.handle()),
                       problem_.where + ", packing an expert");
}

Result<void> ExpertPacker::pack_f8(const ExpertWeights& expert, int matrix, std::byte* to) {
  if (nan_.size() == 0) {
    FEWBIT_TRY(nan_, device::Buffer::allocate(sizeof(std::uint32_t), stream_));
    FEWBIT_TRY(device::fill(nan_.data(), 0, nan_.size(), stream_));
  }
  FEWBIT_TRY(F8Parts parts, f8_parts_of(problem_, expert, matrix));
  CudaF8Source& from = parts.source;
  for (int h = 0; h < 2; ++h) {
    auto& memory = memory_[matrix];
    const auto codes = static_cast<std::size_t>(from.rows * from.depth);
    FEWBIT_TRY(from.codes[h], copy(from.codes[h], codes, memory[h]));
    if (from.mx_scales[h] != nullptr) {
      FEWBIT_TRY(from.mx_scales[h], copy(from.mx_scales[h], codes / 32, memory[2 + h]));
    }
    if (parts.scales[h].empty()) continue;
    FEWBIT_TRY(const std::uint8_t* const scales,
               copy(reinterpret_cast<const std::uint8_t*>(parts.scales[h].data()),
                    sizeof(float) * parts.scales[h].size(), memory[2 + h]));
    from.scales[h] = reinterpret_cast<const float*>(scales);
  }
  const PackF8Args args{.first = from,
                        .count = 1,
                        .to = reinterpret_cast<std::uint8_t*>(to),
                        .nan = nan_.as<std::uint32_t>()};
  return device::check(launch_pack_f8(args, stream_.handle()),
                       problem_.where + ", packing an expert");
}

Result<const std::uint8_t*> ExpertPacker::copy(const std::uint8_t* from, std::size_t bytes,
                                               device::Buffer& to) const {
  if (to.size() < bytes) {
    FEWBIT_TRY(to, device::Buffer::allocate(bytes, stream_));
  }
  FEWBIT_TRY(device::copy_to_device(to.data(), std::as_bytes(std::span(from, bytes)), stream_));
  return static_cast<const std::uint8_t*>(to.as<std::uint8_t>());
}

}  // namespace fewbit::cuda
