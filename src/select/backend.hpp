// SPDX-License-Identifier: Apache-2.0
// What a backend is: its rules, its preparation and its run, as one row of backends/list.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/linear.hpp"
#include "fewbit/moe.hpp"
#include "fewbit/selection.hpp"
#include "select/moe_plan.hpp"

namespace fewbit {

// That the router chooses from, on all ranks.
inline std::int64_t experts_to_choose(const MoeProblem& problem) {
  return problem.routed_experts > 0 ? problem.routed_experts : problem.num_experts;
}

// A prepared MoE layer. Thread-safe for concurrent runs with separate workspaces.
class PreparedMoe {
 public:
  virtual ~PreparedMoe() = default;
  virtual Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const = 0;
  // Arguments were checked by MoeLayer. Allocates nothing.
  virtual Result<void> run(const MoeArgs& args, Executor& executor) const = 0;
  virtual PreparedInfo info() const = 0;
  // For calls whose arguments are all in CUDA memory; nothing here takes them by default.
  virtual Result<std::uint64_t> device_workspace_bytes(std::int64_t /*tokens*/) const {
    return Error{ErrorCode::invalid_argument, "hidden is in CUDA memory, expected CPU memory", ""};
  }
  // Before the first run; sizes were checked by MoeLayer. Nothing here takes one by default.
  virtual Result<void> add_router(const MoeRouter& /*router*/) {
    return Error{ErrorCode::unsupported, "backend " + info().backend + " has no router", ""};
  }
};

struct LinearArgs {
  std::int64_t tokens = 0;
  TensorView x;            // [tokens, k]
  std::span<std::byte> y;  // [tokens, n]
  std::span<std::byte> workspace;
  void* stream = nullptr;  // with x in CUDA memory
};

class PreparedLinear {
 public:
  virtual ~PreparedLinear() = default;
  virtual Result<std::uint64_t> workspace_bytes(std::int64_t tokens) const = 0;
  virtual Result<void> run(const LinearArgs& args, Executor& executor) const = 0;
  virtual PreparedInfo info() const = 0;
  // For calls in CUDA memory; nothing here takes them by default.
  virtual Result<std::uint64_t> device_workspace_bytes(std::int64_t /*tokens*/) const {
    return Error{ErrorCode::invalid_argument, "x is in CUDA memory, expected CPU memory", ""};
  }
};

struct Backend {
  const char* name;
  const char* summary;
  const char* layout;     // of every buffer that plan_moe may plan: "marlin_4bit, row_major"
  const char* built_for;  // an entry of DeviceInfo::built_for
  // Every unmet need, with the numbers of both sides; empty: it can run the layer.
  std::vector<Refusal> (*moe_refusals)(const MoeProblem&, const DeviceInfo&);
  std::vector<Refusal> (*linear_refusals)(const LinearProblem&, const DeviceInfo&);
  // Preparation of a layer in three steps (select/prepare_moe.hpp does them in memory):
  // What its prepared form is made of. A function of the problem, and of which parts (scales, zero
  // points …) the first expert's matrices have. Errors: limit (sizes), unsupported.
  Result<MoePlan> (*plan_moe)(const MoeProblem&, const ExpertWeights& first);
  // Writes every byte of one expert's shares, padding included; verbatim buffers are the caller's.
  // Calls for different experts run at once. Errors: invalid_argument (parts unlike the plan).
  Result<void> (*pack_expert)(const MoeProblem&, const MoePlan&, const ExpertWeights&,
                              ExpertSpans to);
  // Error inconsistent when the plan is not this backend's own for the problem (check_plan): a
  // buffer of another layout, scale format or source is never read. Reads no more than at_open
  // buffers.
  // No function: prepared for another engine, not run here.
  Result<std::unique_ptr<PreparedMoe>> (*open_moe)(const MoeProblem&, const MoePlan&,
                                                   PreparedMemory);
  // The canonical weights of one expert back from its shares, verbatim parts included. No function:
  // the layout loses something.
  Result<ExpertWeights> (*unpack_expert)(const MoeProblem&, const MoePlan&, ConstExpertSpans from);
  Result<std::unique_ptr<PreparedLinear>> (*prepare_linear)(const LinearProblem&,
                                                            const QuantizedTensor&,
                                                            const DeviceInfo&, Executor&);
  // Which variant runs a call of that many tokens on a device that can run it: a pure function, for
  // explain.
  std::string (*variant)(const MoeProblem&, const DeviceInfo&, std::int64_t tokens);
  // Type that sums of products are kept in, for Selection::numerics.
  const char* accumulation = "f32";
  // Memory of its own that preparation takes for one matrix of a scheme that it can run; 0: the
  // matrix is read in place. Empty on overflow. No function: all are read in place.
  std::optional<std::uint64_t> (*packed_bytes)(const Scheme&, std::int64_t n,
                                               std::int64_t k) = nullptr;
  // Whose kernels run what is prepared; only fewbit's run here.
  Engine engine = Engine::fewbit;
  // Not empty: the engine chooses it only when asked for by name, and why.
  const char* only_forced = "";
  // How products are computed, where it is not simply the activations' type and `accumulation`.
  const char* arithmetic = nullptr;
  // Error: why nothing can be prepared of a layer that it can run, decided before anything is
  // written; plan_moe gives the same. No function: all can be.
  Result<void> (*check_prepare)(const MoeProblem&) = nullptr;
  // Takes one expert's shares apart as far as the layout loses nothing, and compares them with the
  // weights that they were packed from. Error inconsistent: where they differ. For layouts without
  // unpack_expert; no function: nothing of them can be had back.
  Result<void> (*undo_expert)(const MoeProblem&, const MoePlan&, const ExpertWeights&,
                              ConstExpertSpans from) = nullptr;

  // What open_moe asks of a plan, without a device and without weights: error inconsistent. No
  // function: it does not run here.
  Result<void> (*check_plan)(const MoeProblem&, const MoePlan&) = nullptr;

  // Prepares a layer in memory by itself, with what plan_moe and pack_expert would give. No
  // function: prepare_moe() does it with those.
  Result<std::unique_ptr<PreparedMoe>> (*prepare_moe)(const MoeProblem&,
                                                      const MoeWeights&) = nullptr;

  std::string why_unprepared(const MoeProblem& problem) const {
    if (check_prepare == nullptr) return "";
    const Result<void> checked = check_prepare(problem);
    return checked ? "" : checked.error().what;
  }
  bool runs_here() const { return engine == Engine::fewbit; }
};

// Those that run here, in order of preference, reference last.
std::span<const Backend* const> all_backends();
// Those of other engines.
std::span<const Backend* const> foreign_backends();
// Of that engine, in its order of preference for the problem and device; then its others.
struct RankedBackend {
  const Backend* backend = nullptr;
  const char* only_forced = "";  // not empty: never chosen by itself, and why
};
std::vector<RankedBackend> backends_of(Engine engine, const MoeProblem& problem,
                                       const DeviceInfo& device);
// Of any engine; nullptr when unknown.
const Backend* find_backend(std::string_view name);

}  // namespace fewbit
