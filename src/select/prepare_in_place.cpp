// SPDX-License-Identifier: Apache-2.0
#include "fewbit/prepare_in_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "select/backend.hpp"
#include "select/expert_scratch.hpp"
#include "select/prepare_moe.hpp"
#include "select/problem.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

// One part of one expert, in the caller's memory.
struct Place {
  std::string name;  // "expert 3 up.codes"
  std::span<std::byte> bytes;
};

Error bad(ErrorCode code, const MoeProblem& problem, const std::string& name, std::string what) {
  return Error{code, std::move(what), fmt::format("{} {}", problem.where, name)};
}

Result<Place> find_place(const MoeProblem& problem, const PlannedBuffer& buffer,
                         const ExpertWeights& expert, std::size_t number,
                         std::span<std::byte> memory) {
  const std::string name = fmt::format("expert {} {}", number, buffer.name);
  const Tensor* part = canonical_part(expert, buffer.name);
  if (part == nullptr || part->view.bytes.size() != buffer.expert_bytes) {
    return bad(
        ErrorCode::unsupported, problem, name,
        part == nullptr
            ? fmt::format("{} bytes that replace no part of the weights", buffer.expert_bytes)
            : fmt::format("{} bytes in place of {}: {} pads them", buffer.expert_bytes,
                          part->view.bytes.size(), buffer.layout));
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(part->view.bytes.data());
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t offset = begin - first;
  if (begin < first || offset > memory.size() || memory.size() - offset < buffer.expert_bytes) {
    return bad(ErrorCode::invalid_argument, problem, name,
               fmt::format("its {} bytes are not in the memory of {} bytes", buffer.expert_bytes,
                           memory.size()));
  }
  if (begin % buffer.alignment != 0) {
    return bad(ErrorCode::invalid_argument, problem, name,
               fmt::format("begins {} bytes behind a multiple of {}", begin % buffer.alignment,
                           buffer.alignment));
  }
  return Place{.name = name, .bytes = memory.subspan(offset, buffer.expert_bytes)};
}

Result<void> check_apart(const MoeProblem& problem, std::vector<const Place*> places) {
  std::ranges::sort(places, {}, [](const Place* place) { return place->bytes.data(); });
  for (std::size_t i = 1; i < places.size(); ++i) {
    const std::span<std::byte> before = places[i - 1]->bytes;
    if (before.data() + before.size() <= places[i]->bytes.data()) continue;
    return bad(ErrorCode::invalid_argument, problem, places[i]->name,
               "shares bytes with " + places[i - 1]->name);
  }
  return {};
}

// Where packed buffers go; others have no bytes.
using ExpertPlaces = std::vector<Place>;
Result<std::vector<ExpertPlaces>> find_places(const MoeProblem& problem, const MoePlan& plan,
                                              const MoeWeights& weights,
                                              std::span<std::byte> memory) {
  std::vector<ExpertPlaces> places(weights.experts.size());
  std::vector<const Place*> replaced;
  for (std::size_t e = 0; e < places.size(); ++e) {
    places[e].resize(plan.buffers.size());
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].use != BufferUse::packed) continue;
      FEWBIT_TRY(places[e][i], find_place(problem, plan.buffers[i], weights.experts[e], e, memory));
      replaced.push_back(&places[e][i]);
    }
  }
  FEWBIT_TRY(check_apart(problem, std::move(replaced)));
  return places;
}

// The shares of one expert as open_moe gets them; at_open ones are kept until then.
using KeptShares = std::vector<std::vector<std::byte>>;
Result<void> replace_expert(const Backend& backend, const MoeProblem& problem, const MoePlan& plan,
                            const ExpertWeights& expert, const ExpertPlaces& places,
                            ExpertScratch& scratch, KeptShares& kept,
                            std::vector<std::span<const std::byte>>& shares) {
  FEWBIT_TRY(backend.pack_expert(problem, plan, expert, scratch.shares));
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const std::span<std::byte> packed = scratch.shares[i];
    switch (plan.buffers[i].use) {
      case BufferUse::packed:
        std::ranges::copy(packed, places[i].bytes.begin());
        shares.emplace_back(places[i].bytes);
        break;
      case BufferUse::at_open:
        shares.emplace_back(kept.emplace_back(packed.begin(), packed.end()));
        break;
      case BufferUse::verbatim: {
        FEWBIT_TRY(const Tensor part, verbatim_share(plan.buffers[i], expert, problem.where));
        shares.push_back(part.view.bytes);
        break;
      }
    }
  }
  return {};
}

}  // namespace

Result<MoeLayer> prepare_in_place(const Selection& selection, const MoeProblem& problem,
                                  const MoeWeights& weights, std::span<std::byte> memory,
                                  const DeviceInfo& device) {
  FEWBIT_TRY(const Backend* backend, selected_backend(selection, problem, device));
  FEWBIT_TRY(check_weights(problem, weights));
  FEWBIT_TRY(const MoePlan plan, backend->plan_moe(problem, weights.experts.front()));
  FEWBIT_TRY(const std::vector<ExpertPlaces> places, find_places(problem, plan, weights, memory));
  PreparedMemory prepared;
  prepared.experts.resize(weights.experts.size());
  KeptShares kept;
  {
    ExpertScratch scratch;
    FEWBIT_TRY(scratch.lay_out(plan));
    for (std::size_t e = 0; e < places.size(); ++e) {
      FEWBIT_TRY(replace_expert(*backend, problem, plan, weights.experts[e], places[e], scratch,
                                kept, prepared.experts[e]));
    }
  }
  for (const PlannedBuffer& buffer : plan.buffers) {
    if (buffer.use == BufferUse::at_open) continue;
    prepared.mapped_bytes += static_cast<std::uint64_t>(plan.experts) * buffer.expert_bytes;
  }
  FEWBIT_TRY(auto opened, backend->open_moe(problem, plan, std::move(prepared)));
  return MoeLayer(problem, std::move(opened));
}

}  // namespace fewbit
