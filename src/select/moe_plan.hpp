// SPDX-License-Identifier: Apache-2.0
// How the prepared weights of a layer lie in memory or in a file, as data: what every buffer is and
// how much of it belongs to an expert. So weights are packed expert by expert straight into their
// final place, and opened again without a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/quantized.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

enum class BufferUse {
  packed,    // written by pack_expert
  verbatim,  // a canonical tensor as it is, called "up.codes": in memory it is read where it lies
  at_open,   // written by pack_expert, small; open_moe takes a copy
};
const char* buffer_use_name(BufferUse use);

// One buffer of a layer: a share for every expert, one after the other, [experts, shape...].
struct PlannedBuffer {
  std::string name;              // "up.codes", unique in the plan
  std::string layout;            // the closed form of its bytes: "cpu_f4_lane16"
  std::string scale_format;      // how scales in it are encoded: "f8_e4m3"; empty: holds none
  std::string source;            // scheme of the weights it is made from
  DType dtype = DType::u8;       // of an expert's share, as is
  Shape shape;                   // this; padding included
  std::uint64_t alignment = 64;  // of the buffer; shares follow each other without gaps
  BufferUse use = BufferUse::packed;
  std::uint64_t expert_bytes = 0;  // of a share; set by MoePlan::add

  bool operator==(const PlannedBuffer&) const = default;
};

struct MoePlan {
  std::int64_t experts = 0;
  std::vector<PlannedBuffer> buffers;

  // Sets expert_bytes. Error limit: all shares overflow 64 bits; invalid_argument: a name twice, an
  // alignment that is no power of two up to 4096.
  Result<void> add(PlannedBuffer buffer);
  // nullptr when absent.
  const PlannedBuffer* find(std::string_view name) const;
  // Place in `buffers`; -1 when absent.
  std::int64_t index(std::string_view name) const;
  bool operator==(const MoePlan&) const = default;
};

// "cpu_f4_lane16, row_major": every layout of the plan once, in order.
std::string layouts_text(const MoePlan& plan);

// Error inconsistent: the first difference, naming the buffer, its field and both values.
Result<void> check_same_plan(const MoePlan& expected, const MoePlan& found,
                             const std::string& where);

// The tensor that a verbatim buffer is: "gate.", "up." or "down." and "codes", "scales",
// "zero_points", "offsets", "g_idx" or "pre_quant_scale". nullptr when there is no such part.
const Tensor* canonical_part(const ExpertWeights& expert, std::string_view name);

// Where one expert's share of each buffer is, in the order of the plan.
using ExpertSpans = std::span<const std::span<std::byte>>;
using ConstExpertSpans = std::span<const std::span<const std::byte>>;

// Prepared bytes of a layer and what keeps them alive.
struct PreparedMemory {
  std::vector<std::vector<std::span<const std::byte>>> experts;  // [experts][buffers]
  std::vector<std::shared_ptr<const void>> owners;
  std::uint64_t owned_bytes = 0;  // for PreparedInfo
  std::uint64_t mapped_bytes = 0;
};
// For open_moe: every share is there, of its size and at its alignment. Errors invalid_argument,
// the buffer with both numbers.
Result<void> check_memory(const MoePlan& plan, const PreparedMemory& memory,
                          const std::string& where);

}  // namespace fewbit
