// SPDX-License-Identifier: Apache-2.0
#include "prepared/verify_expert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "checkpoint/mapped_file.hpp"
#include "prepared/expert_slice.hpp"
#include "prepared/source_expert.hpp"
#include "select/expert_scratch.hpp"
#include "select/prepare_moe.hpp"

namespace fewbit {
namespace {

Error differs(const std::string& where, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), where};
}

Result<void> compare_part(const char* name, const Tensor& prepared, const Tensor& source,
                          const std::string& where) {
  return compare_bytes(name, prepared.view.bytes, source.view.bytes, where);
}

Result<void> compare_matrix(const QuantizedTensor& prepared, const QuantizedTensor& source,
                            const std::string& where) {
  FEWBIT_TRY(compare_part("codes", prepared.codes, source.codes, where));
  FEWBIT_TRY(compare_part("scales", prepared.scales, source.scales, where));
  FEWBIT_TRY(compare_part("zero points", prepared.zero_points, source.zero_points, where));
  FEWBIT_TRY(compare_part("offsets", prepared.offsets, source.offsets, where));
  FEWBIT_TRY(compare_part("g_idx", prepared.g_idx, source.g_idx, where));
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  if (bits(prepared.global_scale) == bits(source.global_scale)) return {};
  return differs(where, fmt::format("global scale is {}, the source's {}", prepared.global_scale,
                                    source.global_scale));
}

// No biases are biases of zero.
Result<void> compare_bias(const char* name, const std::vector<float>& prepared,
                          const std::vector<float>& source, const std::string& where) {
  const auto is_zero = [](float x) { return x == 0; };
  const bool none = (prepared.empty() && std::ranges::all_of(source, is_zero)) ||
                    (source.empty() && std::ranges::all_of(prepared, is_zero));
  if (none || prepared == source) return {};
  return differs(where, fmt::format("{} of {} values differs from the source's {}", name,
                                    prepared.size(), source.size()));
}

// Layouts that can't be undone in full are made again and compared, and what can be is undone.
Result<void> compare_packed(const Backend& backend, const PreparedLayerInfo& layer,
                            const ExpertWeights& source, ConstExpertSpans shares,
                            const std::string& where) {
  const MoePlan& plan = layer.plan;
  ExpertScratch again;
  FEWBIT_TRY(again.lay_out(plan));
  FEWBIT_TRY(backend.pack_expert(layer.problem, plan, source, again.shares));
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    std::span<const std::byte> want = again.shares[i];
    if (plan.buffers[i].use == BufferUse::verbatim) {
      FEWBIT_TRY(const Tensor part, verbatim_share(plan.buffers[i], source, where));
      want = part.view.bytes;
    }
    if (!std::ranges::equal(want, shares[i])) {
      return differs(where, fmt::format("buffer {} differs from the source packed again",
                                        plan.buffers[i].name));
    }
  }
  if (backend.undo_expert == nullptr) return {};
  const Result<void> undone = backend.undo_expert(layer.problem, plan, source, shares);
  return undone ? undone : differs(where, undone.error().what);
}

Result<void> compare_whole_expert(const LayerPair& pair, std::size_t e, const Checkpoint& source) {
  const PlannedLayer& layer = *pair.planned;
  const std::int64_t number = layer.slice.first_expert + static_cast<std::int64_t>(e);
  const std::string where = fmt::format("{} expert {}", layer.info.problem.where, number);
  FEWBIT_TRY(const ExpertWeights whole, read_source_expert(layer, source, number, where));
  FEWBIT_TRY(const ExpertWeights want, slice_expert(whole, layer.slice, where));
  const ConstExpertSpans shares = pair.memory.experts[e];
  if (layer.backend->unpack_expert == nullptr) {
    return compare_packed(*layer.backend, layer.info, want, shares, where);
  }
  FEWBIT_TRY(const ExpertWeights got,
             layer.backend->unpack_expert(layer.info.problem, layer.info.plan, shares));
  if (got.gate.has_value() != want.gate.has_value()) return differs(where, "gate is missing");
  if (want.gate) FEWBIT_TRY(compare_matrix(*got.gate, *want.gate, where + " gate"));
  FEWBIT_TRY(compare_matrix(got.up, want.up, where + " up"));
  FEWBIT_TRY(compare_matrix(got.down, want.down, where + " down"));
  FEWBIT_TRY(compare_bias("gate's bias", got.gate_bias, want.gate_bias, where));
  FEWBIT_TRY(compare_bias("up's bias", got.up_bias, want.up_bias, where));
  return compare_bias("down's bias", got.down_bias, want.down_bias, where);
}

// Header and padding: no expert has them, but they are what preparing the source gives.
Result<void> compare_frame(const MappedFile& file, const PreparedLayerInfo& layer) {
  FEWBIT_TRY(const LayerFile want, plan_layer_file(layer));
  const std::span<const std::byte> bytes = file.bytes();
  const std::string where = file.path().string();
  FEWBIT_TRY(compare_bytes("header's bytes",
                           bytes.first(std::min(want.header.size(), bytes.size())),
                           std::as_bytes(std::span(want.header)), where));
  if (bytes.size() != want.bytes) {
    return differs(where, fmt::format("{} bytes, the source gives {}", bytes.size(), want.bytes));
  }
  for (const auto& [begin, size] : want.gaps) {
    const auto gap = bytes.subspan(begin, size);
    const auto at = std::ranges::find_if(gap, [](std::byte b) { return b != std::byte{}; });
    if (at == gap.end()) continue;
    return differs(where, fmt::format("padding is {} at byte {}, the source gives 0",
                                      std::to_integer<int>(*at),
                                      begin + static_cast<std::uint64_t>(at - gap.begin())));
  }
  return {};
}

// What was compared is not kept in memory, nor what the system mapped around it: 64 KiB at a time.
void release_expert(const LayerPair& pair, std::size_t e) {
  constexpr std::uint64_t around = 65536;
  const std::byte* begin = pair.file->bytes().data();
  for (const std::span<const std::byte> share : pair.memory.experts[e]) {
    if (share.empty()) continue;
    const auto at = static_cast<std::uint64_t>(share.data() - begin);
    const std::uint64_t from = at - std::min(at, around);
    pair.file->release(from, at - from + share.size() + around);
  }
}

}  // namespace

Result<void> compare_bytes(const char* name, std::span<const std::byte> a,
                           std::span<const std::byte> b, const std::string& where) {
  const auto at = std::ranges::mismatch(a, b);
  if (at.in1 == a.end() && at.in2 == b.end()) return {};
  return differs(where, fmt::format("{} differ from the source at byte {} of {} (source {})", name,
                                    at.in1 - a.begin(), a.size(), b.size()));
}

Result<LayerPair> pair_layer(const std::filesystem::path& folder, const PlannedLayer& layer) {
  FEWBIT_TRY(const auto file, MappedFile::open(folder / layer.info.file));
  FEWBIT_TRY(PreparedMemory memory, map_layer(layer.info, file));
  FEWBIT_TRY(compare_frame(*file, layer.info));
  return LayerPair{.planned = &layer, .file = file, .memory = std::move(memory)};
}

Result<void> compare_expert(const LayerPair& pair, std::size_t e, const Checkpoint& source) {
  FEWBIT_TRY(compare_whole_expert(pair, e, source));
  pair.planned->experts.release(source,
                                pair.planned->slice.first_expert + static_cast<std::int64_t>(e));
  release_expert(pair, e);
  return {};
}

}  // namespace fewbit
