// SPDX-License-Identifier: Apache-2.0
#include "select/prepare_moe.hpp"

#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <utility>

#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

// Where each buffer begins in one allocation; verbatim ones take nothing.
struct Places {
  std::vector<std::uint64_t> begin;
  std::uint64_t bytes = 0;
};

Result<Places> place_buffers(const MoePlan& plan, BufferUse use, const std::string& where) {
  Places places;
  for (const PlannedBuffer& buffer : plan.buffers) {
    const auto begin = checked_round_up(places.bytes, buffer.alignment);
    const std::uint64_t size =
        buffer.use == use ? static_cast<std::uint64_t>(plan.experts) * buffer.expert_bytes : 0;
    const auto end = begin ? checked_add(*begin, size) : std::nullopt;
    if (!end) {
      return Error{ErrorCode::limit,
                   fmt::format("packed weights overflow 2^64 bytes at buffer {}", buffer.name),
                   where};
    }
    places.begin.push_back(size == 0 ? places.bytes : *begin);
    if (size != 0) places.bytes = *end;
  }
  return places;
}

Result<AlignedBuffer> allocate(std::uint64_t bytes) {
  if (bytes == 0) return AlignedBuffer{};
  return AlignedBuffer::allocate(bytes);
}

std::span<std::byte> share_of(AlignedBuffer& memory, const Places& places, const MoePlan& plan,
                              std::size_t buffer, std::size_t expert) {
  const std::uint64_t bytes = plan.buffers[buffer].expert_bytes;
  return memory.span().subspan(places.begin[buffer] + expert * bytes, bytes);
}

// Memory of a layer on its way to open_moe.
struct LayerPacking {
  MoePlan plan;
  Places packed_places;
  Places at_open_places;
  std::shared_ptr<AlignedBuffer> packed;
  AlignedBuffer at_open;
  std::vector<std::vector<std::span<std::byte>>> to;  // [experts][buffers]
  PreparedMemory memory;
};

Result<void> lay_out_expert(LayerPacking& packing, const ExpertWeights& expert, std::size_t e,
                            const std::string& where) {
  const MoePlan& plan = packing.plan;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlannedBuffer& buffer = plan.buffers[i];
    if (buffer.use == BufferUse::verbatim) {
      FEWBIT_TRY(Tensor part, verbatim_share(buffer, expert, where));
      packing.memory.experts[e].push_back(part.view.bytes);
      packing.memory.mapped_bytes += part.view.bytes.size();
      packing.memory.owners.push_back(std::move(part.owner));
      packing.to[e].emplace_back();
      continue;
    }
    const auto share = buffer.use == BufferUse::packed
                           ? share_of(*packing.packed, packing.packed_places, plan, i, e)
                           : share_of(packing.at_open, packing.at_open_places, plan, i, e);
    packing.memory.experts[e].push_back(share);
    packing.to[e].push_back(share);
  }
  return {};
}

Result<LayerPacking> lay_out(MoePlan plan, const MoeProblem& problem, const MoeWeights& weights) {
  LayerPacking packing;
  packing.plan = std::move(plan);
  FEWBIT_TRY(packing.packed_places, place_buffers(packing.plan, BufferUse::packed, problem.where));
  FEWBIT_TRY(packing.at_open_places,
             place_buffers(packing.plan, BufferUse::at_open, problem.where));
  FEWBIT_TRY(AlignedBuffer packed, allocate(packing.packed_places.bytes));
  packing.packed = std::make_shared<AlignedBuffer>(std::move(packed));
  FEWBIT_TRY(packing.at_open, allocate(packing.at_open_places.bytes));
  packing.memory.owners.push_back(packing.packed);
  packing.memory.owned_bytes = packing.packed->size();
  packing.memory.experts.resize(weights.experts.size());
  packing.to.resize(weights.experts.size());
  for (std::size_t e = 0; e < weights.experts.size(); ++e) {
    FEWBIT_TRY(lay_out_expert(packing, weights.experts[e], e, problem.where));
  }
  return packing;
}

}  // namespace

Result<Tensor> verbatim_share(const PlannedBuffer& buffer, const ExpertWeights& expert,
                              const std::string& where) {
  const Tensor* part = canonical_part(expert, buffer.name);
  if (part == nullptr || part->empty()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("an expert has no {}, but another has", buffer.name), where};
  }
  // What codes are, their scheme says.
  const bool same_type = part->view.dtype == buffer.dtype || buffer.name.ends_with(".codes");
  if (!same_type || part->view.bytes.size() != buffer.expert_bytes) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} is {} of {} bytes, expected {} of {}", buffer.name,
                             dtype_name(part->view.dtype), part->view.bytes.size(),
                             dtype_name(buffer.dtype), buffer.expert_bytes),
                 where};
  }
  return *part;
}

Result<std::unique_ptr<PreparedMoe>> prepare_moe(const Backend& backend, const MoeProblem& problem,
                                                 const MoeWeights& weights, Executor& executor) {
  if (backend.open_moe == nullptr) {
    return Error{ErrorCode::unsupported,
                 fmt::format("backend {} prepares weights for another engine, and has no kernels "
                             "here",
                             backend.name),
                 problem.where};
  }
  if (backend.prepare_moe != nullptr) return backend.prepare_moe(problem, weights);
  FEWBIT_TRY(MoePlan plan, backend.plan_moe(problem, weights.experts.front()));
  FEWBIT_TRY(LayerPacking packing, lay_out(std::move(plan), problem, weights));
  std::mutex mutex;  // guards failure
  std::optional<Error> failure;
  parallel_for(executor, static_cast<int>(weights.experts.size()), [&](int index) {
    const auto e = static_cast<std::size_t>(index);
    const auto done = backend.pack_expert(problem, packing.plan, weights.experts[e], packing.to[e]);
    if (done) return;
    const std::scoped_lock lock(mutex);
    if (!failure) failure = done.error();
  });
  if (failure) return *failure;
  return backend.open_moe(problem, packing.plan, std::move(packing.memory));
}

}  // namespace fewbit
