// SPDX-License-Identifier: Apache-2.0
// The rules of other engines' kernels as data: a backend here is a table, and one function tells
// every need of it that a layer does not meet. docs/backends.md gives the source of each rule.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fewbit/selection.hpp"

namespace fewbit::foreign {

// Weights as vLLM's keys tell them apart. The g32 and asym forms are compressed-tensors' only: GPTQ
// and AWQ are int4 whatever their groups and zero points. Forms of integers that an engine's loader
// refuses have the kind that they would have (Loader).
enum class WeightKind : std::uint8_t {
  plain,
  int4,
  int4_g32,
  int4_asym,
  int4_g32_asym,
  int8,
  nvfp4,
  mxfp4,
  mxfp8,
  fp8_tensor,
  fp8_channel,
  fp8_block,  // 128 x 128
  other,      // nothing that an engine has a name for
};
const char* weight_kind_name(WeightKind kind);
WeightKind weight_kind(const Scheme& scheme);

// What the kernel gets as activations: 16-bit values, or codes as the checkpoint asks for.
enum class ActivationKind : std::uint8_t {
  none,
  int8,
  fp8_tensor,
  fp8_token,
  fp8_group,  // of 128
  mxfp8,
  nvfp4,
  mxfp4,
};
const char* activation_kind_name(ActivationKind kind);
// Weight-only integers ask for none whatever the checkpoint says, but for int8.
ActivationKind activation_kind(const Scheme& scheme);

template <class E>
class Set {
 public:
  constexpr Set(std::initializer_list<E> members) {
    for (const E member : members) bits_ |= bit(member);
  }
  static constexpr Set all() {
    Set set{};
    set.bits_ = ~std::uint32_t{0};
    return set;
  }
  constexpr bool contains(E member) const { return (bits_ & bit(member)) != 0; }

 private:
  static constexpr std::uint32_t bit(E member) {
    return std::uint32_t{1} << static_cast<std::uint32_t>(member);
  }
  std::uint32_t bits_ = 0;
};

inline constexpr Set<WeightKind> integers{WeightKind::int4, WeightKind::int4_g32,
                                          WeightKind::int4_asym, WeightKind::int4_g32_asym,
                                          WeightKind::int8};
inline constexpr Set<WeightKind> any_fp8{WeightKind::fp8_tensor, WeightKind::fp8_channel,
                                         WeightKind::fp8_block, WeightKind::mxfp8};

// Compute capabilities, both ends included; 100 is 10.0.
struct Capability {
  int from = 0;
  int to = 999;
  constexpr bool contains(int capability) const { return from <= capability && capability <= to; }
};
inline constexpr Capability any_capability{};
inline constexpr Capability family_100{100, 109};
inline constexpr Capability family_110{110, 119};
inline constexpr Capability family_120{120, 129};

struct WeightRule {
  Set<WeightKind> weights;
  Set<ActivationKind> activations;
  Capability capability = any_capability;  // within the backend's own
};

struct FunctionRule {
  Activation function = Activation::silu;
  bool limit = true;  // takes one
  Set<WeightKind> weights = Set<WeightKind>::all();
};

struct DTypeRule {
  DType dtype = DType::bf16;
  Capability capability = any_capability;
};

// How the size of a group of scales enters a divisor.
enum class GroupUse : std::uint8_t { ignored, alone, at_least, at_most };
enum class When : std::uint8_t {
  always,
  gated,
  non_gated,
  swigluoai,
  group_order,     // act-order in groups
  no_group_order,  // none, or static
  hidden_128,      // hidden_size % 128 = 0
  not_hidden_128,
};
struct Divisor {
  enum class Size : std::uint8_t { hidden, intermediate };
  Size size = Size::hidden;
  std::int64_t by = 1;
  Set<WeightKind> weights = Set<WeightKind>::all();
  GroupUse group = GroupUse::ignored;
  When when = When::always;
};

enum class ExpertSpread : std::uint8_t {
  one_rank,     // all experts on every rank
  contiguous,   // a run of experts a rank, without a map
  tensor_size,  // the same, over one rank or over as many as tensor parallel has
  any,          // by a map
};

// 0: no limit.
struct RouterLimits {
  int most_top_k = 0;
  int experts_multiple = 0;
  bool more_experts_than_top_k = false;
  bool llama4_top_1 = false;
  int most_top_groups = 0;  // deepseek_v3; its groups must also divide the experts
};

// Whose loader brings integers to the kernel: it refuses forms before any kernel is asked.
enum class Loader : std::uint8_t {
  none,         // the caller
  vllm_marlin,  // vLLM, when Marlin is chosen
  vllm,         // when another is
  sglang,
};

inline constexpr Set<TokenExchange> batched_exchanges{TokenExchange::deepep_low_latency,
                                                      TokenExchange::nixl};
inline constexpr Set<TokenExchange> ordered_exchanges{
    TokenExchange::none, TokenExchange::allgather, TokenExchange::deepep_high_throughput,
    TokenExchange::flashinfer_one_sided, TokenExchange::flashinfer_two_sided};
// What Triton runs on.
inline constexpr Set<DeviceKind> triton_devices{DeviceKind::cuda, DeviceKind::xpu};
inline constexpr DTypeRule bf16_only[] = {{DType::bf16}};
inline constexpr DTypeRule both_16_bit[] = {{DType::bf16}, {DType::f16}};

// Empty spans and full sets ask for nothing.
struct Rules {
  Set<DeviceKind> devices = {DeviceKind::cuda};
  IsaLevel isa = IsaLevel::generic;  // of a CPU
  std::span<const Capability> capabilities = {};
  int cuda_version = 0;  // at least; a device that tells none is not asked
  std::span<const WeightRule> weights = {};
  std::span<const std::int64_t> integer_groups = {};  // 0: one scale a channel
  bool zero_points = true;                            // stored ones
  bool group_order = true;                            // act-order in groups
  bool awq_words = true;                              // codes in AutoAWQ's order
  Loader loader = Loader::none;                       // of integers
  bool gptq_as_stored = true;  // in the checkpoint's layout, where it does not fit Marlin
  std::span<const FunctionRule> functions = {};
  bool non_gated = true;
  Set<WeightKind> biases = Set<WeightKind>::all();
  bool declared_biases = true;  // checkpoints whose loader makes room for them, stored or not
  std::span<const DTypeRule> dtypes = {};
  bool weight_on_input = true;
  ExpertSpread experts = ExpertSpread::any;
  Set<TokenExchange> exchanges = Set<TokenExchange>::all();
  Set<Routing> routings = Set<Routing>::all();
  Set<Routing> f32_logits = Set<Routing>::all();
  RouterLimits router = {};
  std::span<const Divisor> shapes = {};
  // Weights that another kernel under the same name takes, and its rules.
  Set<WeightKind> other_weights = {};
  const Rules* other = nullptr;
  // How products are computed where the format's name does not tell.
  const char* arithmetic = nullptr;
};

// A rank's share must be whole groups and blocks of scales, whatever the kernel: no loader cuts
// one. What of hidden_size or intermediate_size is one. Columns in act-order may go anywhere: 1.
std::int64_t whole_scales(const MoeProblem& problem, bool hidden);
// "232 (14.5 groups of 16: …)": a size that is no multiple of `unmet`, and whether padding helps.
std::string unfit_text(std::int64_t value, std::int64_t unmet, std::int64_t scales, bool ordered);
// What of integers of that kind the loader and the kernel don't take.
std::vector<Refusal> integer_needs(const Rules& rules, const char* which, const Scheme& scheme,
                                   WeightKind kind);
// "a", "a or b", "a, b or c"
std::string joined(const std::vector<std::string>& words, const char* between = ", ",
                   const char* last = " or ");

// Every unmet need, with both sides.
std::vector<Refusal> unmet_needs(const Rules& rules, const MoeProblem& problem,
                                 const DeviceInfo& device);

}  // namespace fewbit::foreign
