// SPDX-License-Identifier: Apache-2.0
// Step 4, select: which backend runs a layer on a device, and why the others can't. All of it is
// plain data, so any machine can be described and any rule tested.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/quantized.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// Instruction-set facts of a CPU; each is its own fact, true only when the CPU has it and the
// operating system allows it.
struct CpuFeatures {
  bool avx2 = false;    // AVX2 + FMA + F16C
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_vbmi = false;
  bool avx512_bf16 = false;
  bool avx512_fast_bf16 = false;  // its dot products as often as f32 multiply-adds
  bool amx_tile = false;
  bool amx_bf16 = false;
  bool amx_int8 = false;
  bool neon = false;
  bool neon_bf16 = false;
  bool neon_i8mm = false;
  bool operator==(const CpuFeatures&) const = default;
};

// The clusters that kernels are built for, weakest first. FEWBIT_ISA caps at one of these names.
enum class IsaLevel { generic, neon, avx2, avx512, amx };
const char* isa_name(IsaLevel level);
// Error invalid_argument lists the known names.
Result<IsaLevel> isa_from_name(std::string_view name);
// The best level these features allow.
IsaLevel best_isa(const CpuFeatures& features);

struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;  // "AMD EPYC", "NVIDIA H200"
  // CPU
  CpuFeatures cpu;
  IsaLevel isa = IsaLevel::generic;  // level in use: best_isa, capped by FEWBIT_ISA
  int physical_cores = 1;
  int usable_threads = 1;  // min(affinity, floor(cgroup quota), physical cores)
  std::uint64_t memory_bytes = 0;
  // CUDA
  int compute_capability = 0;             // 90 for 9.0
  int cuda_version = 0;                   // that kernels are built with, 130 for 13.0; 0: not told
  int sm_count = 0;                       // Xe cores of an XPU
  std::uint64_t shared_memory_bytes = 0;  // that one thread block can have
  // What this binary holds code for: "generic", "avx2", "sm_90a" …
  std::vector<std::string> built_for;
  // A machine that is only described: backends are chosen for it and layers prepared by rules
  // alone, as if this binary held code for all; a layer is run only by code that it does hold.
  bool described = false;
};
// This machine, detected once; FEWBIT_ISA applied. Error: FEWBIT_ISA unknown, or above the machine.
Result<DeviceInfo> detect_cpu();
// "cpu" (this machine), "cuda" (its first CUDA device), "cpu:generic", "cpu:neon", "cpu:avx2",
// "cpu:avx512", "cpu:amx"; "sm_75" to "sm_121" with the public figures of a card of that
// capability, "sm_120:cuda12.8" with a CUDA version too; "xpu"; case does not count. All but the
// first two are described: no driver is asked. Errors: invalid_argument lists them; unsupported: no
// CUDA device here.
Result<DeviceInfo> describe_device(std::string_view text);

enum class RouterWeightSide { output, input };

// How tokens reach the ranks that hold their experts.
enum class TokenExchange {
  none,  // no other rank holds experts, or every rank sees all tokens
  allgather,
  deepep_high_throughput,
  deepep_low_latency,  // experts see batches, not tokens in order
  nixl,                // the same
  flashinfer_one_sided,
  flashinfer_two_sided,
};
const char* exchange_name(TokenExchange exchange);
Result<TokenExchange> exchange_from_name(std::string_view name);

// How experts are picked and weighted, as engines tell it apart.
enum class Routing {
  softmax,      // softmax, then the top k as they are
  renormalize,  // softmax over the top k
  deepseek_v3,  // sigmoid with a correction bias, top k of the top groups, renormalized
  llama4,       // the top one, sigmoid
  sigmoid,      // as they are
  sigmoid_renormalize,
  minimax2,       // sigmoid with a correction bias, no groups, renormalized
  sqrt_softplus,  // DeepSeek-V4
  other,
};
const char* routing_name(Routing routing);
Result<Routing> routing_from_name(std::string_view name);

// How the layer is spread; the sizes of a problem are those of one rank.
struct Parallel {
  int tensor = 1;
  int expert = 1;
  TokenExchange exchange = TokenExchange::none;
  bool operator==(const Parallel&) const = default;
};

// Everything a backend's rules may ask about one MoE layer.
struct MoeProblem {
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_experts = 0;  // local experts
  int top_k = 1;
  Scheme gate_up;  // scheme of gate and up
  Scheme down;
  ActivationParams activation;
  DType activation_dtype = DType::bf16;  // of hidden states in and out; bf16, f16 or f32
  RouterWeightSide router_weight_side = RouterWeightSide::output;
  bool expert_map = false;
  bool biases = false;          // some expert adds a bias to a product
  std::int64_t max_tokens = 1;  // workspace is planned for this many
  std::string where;            // "model.layers.0.mlp" for messages
  // Of the router and of the other ranks; our own backends don't mind.
  Routing routing = Routing::renormalize;
  int router_groups = 1;
  int top_groups = 1;
  DType router_dtype = DType::bf16;  // of the logits
  std::int64_t routed_experts = 0;   // on all ranks; 0: num_experts
  Parallel parallel;
  // Experts whose gate and up have global scales that no exact step makes one.
  std::int64_t two_scale_experts = 0;
  // Experts whose gate and up have different act-orders.
  std::int64_t two_order_experts = 0;
};
// Sizes taken from the weights. Error inconsistent when experts mix schemes (names both).
Result<MoeProblem> make_problem(const MoeWeights& weights, const ModelConfig& config,
                                DType activation_dtype, std::int64_t max_tokens);

enum class Reason {
  device,      // wrong kind of machine
  isa,         // instruction set missing
  not_built,   // this binary holds no code for it
  weight,      // weight scheme
  activation,  // activation function or its parameters
  dtype,       // activation dtype
  shape,       // divisibility, sizes
  routing,     // routing method, top-k, expert map, router weight side
  parallel,    // token exchange, expert parallel
  engine,      // another engine than the one asked for
  layout,      // experts prepared in another form
};
const char* reason_name(Reason reason);

// One unmet need. needs and has hold the numbers of both sides: "hidden_size % 16 = 0", "2050".
struct Refusal {
  Reason reason = Reason::shape;
  std::string needs;
  std::string has;
};

// Whose kernels run the layer. For the others fewbit decides and prepares as they would.
enum class Engine { fewbit, vllm, sglang, flashinfer };
const char* engine_name(Engine engine);  // "vLLM"
// "fewbit", "vllm", "sglang", "flashinfer". Error lists them.
Result<Engine> engine_from_name(std::string_view name);

struct Candidate {
  std::string backend;
  std::vector<Refusal> refusals;  // empty: it can run the layer
  std::string only_forced;        // not empty: chosen only when asked for by name, and why
  // Not empty: it can run the layer on a described device, but this binary can't: "needs code for
  // sm_90a, has generic, avx2".
  std::string unbuilt;
  // Not empty: the layer is described only; `prepare` writes nothing for this backend, and why.
  std::string unprepared;
};

struct Selection {
  Engine engine = Engine::fewbit;
  std::string chosen;
  bool forced = false;
  std::vector<Candidate> candidates;  // in order of preference, reference last
  std::string numerics;               // "bf16 activations, f32 accumulation"
};

struct SelectOptions {
  // Forced backend; empty: of experts FEWBIT_BACKEND (engine fewbit), else the first that can.
  std::string backend;
  Engine engine = Engine::fewbit;
};
// Only engine fewbit runs here: a selection for another one tells what that engine would choose.
// Errors: unsupported (forced backend refused: lists every unmet need; or no backend at all),
// invalid_argument (unknown backend name: lists the known ones).
Result<Selection> select_backend(const MoeProblem& problem, const DeviceInfo& device,
                                 const SelectOptions& options = {});
// The table as text: chosen, refused, every reason, and which variant runs at 1, 16, 512 tokens.
std::string explain(const MoeProblem& problem, const DeviceInfo& device,
                    const Selection& selection);

struct BackendDescription {
  std::string name;
  std::string summary;
  bool built = false;              // this binary holds it
  bool usable = false;             // this device can run it; unless described, with this binary
  bool preparable = false;         // prepare writes for it
  std::string layout;              // names of all that prepare may write; else why there are none
  Engine engine = Engine::fewbit;  // whose kernels read that
};
std::vector<BackendDescription> list_backends(const DeviceInfo& device,
                                              Engine engine = Engine::fewbit);

}  // namespace fewbit
