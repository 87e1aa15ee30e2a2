// SPDX-License-Identifier: Apache-2.0
// From 16/32-bit weights to a quantized checkpoint, streamed tensor by tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {

// done and total in bytes of source weights; return false to cancel (nothing is left behind).
using ProgressFn = std::function<bool(std::uint64_t done, std::uint64_t total)>;

struct QuantizeOptions {
  std::string scheme = "nvfp4";  // ModelOpt NVFP4
  bool experts = true;
  bool attention = false;  // q/k/v/o projections too
  // Also write matrices of which more than half of the blocks that are not zero would become zero.
  bool allow_erased = false;
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;
  ProgressFn progress;
};

// The quantized matrix with the largest block error.
struct WorstMatrix {
  std::string name;         // of its weights; empty: none was quantized
  double block_error = 0;   // mean of ||b - q(b)|| / ||b|| over its blocks that are not zero
  double erased_share = 0;  // of the blocks that are not zero, those that became zero
};

struct QuantizeReport {
  std::int64_t quantized_tensors = 0;
  std::int64_t kept_tensors = 0;
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  double relative_error = 0;        // Frobenius, over all quantized matrices: ||w - q(w)|| / ||w||
  std::int64_t erased_blocks = 0;   // blocks with a non-zero weight that became all zero
  std::int64_t clamped_scales = 0;  // block scales raised to the smallest or lowered to the largest
  WorstMatrix worst;
};

// Writes a ModelOpt checkpoint (W4A16_NVFP4) in the source's own naming, with both config places,
// the tokenizer and every other small file. Parts that engines fuse (gate and up of an expert; q, k
// and v) get one global scale, of the largest weight of all. Errors: unsupported (scheme name lists
// the known ones; already quantized source; k % 16), corrupt (a NaN or infinite weight, named; a
// matrix of mostly erased blocks), inconsistent (missing tensors, shapes against the config), io.
Result<QuantizeReport> quantize_checkpoint(const Checkpoint& source,
                                           const std::filesystem::path& output,
                                           const QuantizeOptions& options, Executor& executor);

// What GPTQ zero points that are stored one too small mean when all their bits are set.
enum class AllOnesZeros {
  wrap,   // 0, which packers store as -1
  above,  // 2^bits, as readers have it that do not mask the sum
};

struct DequantizeOptions {
  DType dtype = DType::bf16;  // or f16, f32
  AllOnesZeros all_ones_zeros = AllOnesZeros::wrap;
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;
  // Of a GGUF file's parts, bytes of tensor data; one file when empty.
  std::optional<std::uint64_t> max_part_bytes = std::nullopt;
  ProgressFn progress;  // in bytes of the output
};

struct DequantizeReport {
  std::int64_t decoded_tensors = 0;
  std::int64_t kept_tensors = 0;
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  // Decoded values that the target type can't hold exactly: each was rounded once.
  std::int64_t inexact_values = 0;
  // Of these, values that are too small for the target and became 0.
  std::int64_t erased_values = 0;
  // Zero points of all ones that were read as `all_ones_zeros` says.
  std::int64_t all_ones_zeros = 0;
  // Of a GGUF output, which may be in parts; empty: a folder was written.
  std::vector<std::filesystem::path> gguf_files;
};

// Writes the checkpoint with every quantized matrix decoded to 16 or 32 bits, in the same naming,
// without its quantization config; all other tensors and files as they are. output: a folder, or of
// a GGUF source also a file "x.gguf", with the source's metadata (in parts "x-00001-of-00002.gguf"
// with max_part_bytes). Errors: unsupported (a module that isn't readable, by name; dtype; a GGUF
// file of another source), io, and all of canonicalize.
Result<DequantizeReport> dequantize_checkpoint(const Checkpoint& source,
                                               const std::filesystem::path& output,
                                               const DequantizeOptions& options,
                                               Executor& executor);

// Round-to-nearest NVFP4 of one matrix (ModelOpt's rule): s2 = amax/2688, block scale =
// e4m3(clamp(block_amax/(6*s2), 2^-9, 448)), code = e2m1(w / (scale*s2)), ties to even.
// weights [n, k] f32, k % 16 == 0.
struct Nvfp4Matrix {
  std::vector<std::byte> codes;   // [n, k/2]
  std::vector<std::byte> scales;  // [n, k/16] e4m3
  float global_scale = 0;
  std::int64_t erased_blocks = 0;
  std::int64_t clamped_scales = 0;
};
Result<Nvfp4Matrix> quantize_nvfp4(std::int64_t n, std::int64_t k, std::span<const float> weights);

}  // namespace fewbit
