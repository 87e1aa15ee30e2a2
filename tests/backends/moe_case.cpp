// SPDX-License-Identifier: Apache-2.0
#include "backends/moe_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/aligned_buffer.hpp"
#include "core/convert.hpp"

namespace fewbit::test {
namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::byte guard{0x5a};
constexpr std::byte garbage{0xff};  // NaN in every float type

std::vector<float> normal_values(std::size_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

std::vector<std::byte> converted(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(dtype_bits(dtype)) / 8);
  EXPECT_TRUE(convert_from_f32(values, dtype, bytes));
  return bytes;
}

QuantizedTensor random_nvfp4(std::int64_t n, std::int64_t k, std::mt19937& random) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k / 2));
  for (auto& byte : codes) byte = static_cast<std::uint8_t>(random());
  // Scales of 2^-2 to just below 2^2.
  std::vector<std::uint8_t> scales(static_cast<std::size_t>(n * ((k + 15) / 16)));
  for (auto& scale : scales) scale = static_cast<std::uint8_t>(0x28 + random() % 32);
  const float global = 0.01F + 0.01F * static_cast<float>(random() % 64) / 64;
  return *make_nvfp4(n, k, owned_tensor(DType::u8, {n, k / 2}, std::move(codes)),
                     owned_tensor(DType::f8_e4m3, {n, (k + 15) / 16}, std::move(scales)), global);
}

QuantizedTensor random_matrix(DType weight, std::int64_t n, std::int64_t k, std::mt19937& random) {
  if (weight == DType::f4_e2m1) return random_nvfp4(n, k, random);
  const auto values = normal_values(static_cast<std::size_t>(n * k), 0.05F, random);
  return *make_plain(n, k, owned_tensor(weight, {n, k}, converted(weight, values)));
}

Scheme scheme_of(const LayerSpec& spec) {
  if (spec.scheme) return *spec.scheme;
  return spec.weight == DType::f4_e2m1 ? nvfp4_scheme() : plain_scheme(spec.weight);
}

Tensor random_floats(DType dtype, Shape shape, std::size_t count, std::mt19937& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(1 + random() % 64) / 64;
  return owned_tensor(dtype, shape, converted(dtype, values));
}

// `size` bytes between two guards; memory starts aligned to 64.
struct Guarded {
  explicit Guarded(std::size_t bytes)
      : size(bytes), buffer(*AlignedBuffer::allocate(bytes + 2 * guard_bytes)) {
    std::ranges::fill(buffer.span(), guard);
    std::ranges::fill(memory(), garbage);
  }
  std::span<std::byte> memory() { return buffer.span().subspan(guard_bytes, size); }
  bool intact() {
    const auto is_guard = [](std::byte b) { return b == guard; };
    return std::ranges::all_of(buffer.span().first(guard_bytes), is_guard) &&
           std::ranges::all_of(buffer.span().last(guard_bytes), is_guard);
  }
  std::size_t size;
  AlignedBuffer buffer;
};

}  // namespace

LayerSpec spec_of(const Scheme& scheme, std::int64_t hidden_size, std::int64_t intermediate_size,
                  std::int64_t experts) {
  return {.experts = experts,
          .hidden_size = hidden_size,
          .intermediate_size = intermediate_size,
          .activation = {},
          .scheme = scheme};
}

Scheme scaled_scheme(DType weight, DType scale, Granularity granularity) {
  Scheme scheme;
  scheme.producer = Producer::compressed_tensors;
  scheme.weight = weight;
  scheme.scale = ScaleSpec{.dtype = scale, .granularity = granularity};
  scheme.zero_point = weight == DType::u4 ? 8 : weight == DType::u8 ? 128 : 0;
  if (weight == DType::u2) scheme.zero_point = 1;
  return scheme;
}

QuantizedTensor random_scaled(const Scheme& scheme, std::int64_t n, std::int64_t k,
                              std::mt19937& random) {
  const auto count = [](std::int64_t size, std::int64_t each) {
    return each == 0 ? 1 : (size + each - 1) / each;
  };
  const Granularity& shape = scheme.scale->granularity;
  const std::int64_t rows = count(n, shape.rows);
  const std::int64_t groups = count(k, shape.cols);
  const auto elements = static_cast<std::size_t>(rows * groups);
  const int bits = dtype_bits(scheme.weight);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k * bits / 8));
  for (auto& byte : codes) {
    byte = static_cast<std::uint8_t>(random());
    if (scheme.weight == DType::f8_e4m3 && (byte & 0x7fU) == 0x7fU) byte ^= 1U;
  }
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme = scheme;
  out.codes = owned_tensor(scheme.weight, {n, k}, std::move(codes));
  out.scales = random_floats(scheme.scale->dtype, {rows, groups}, elements, random);
  if (scheme.scale->has_global) out.global_scale = 0.03F;
  if (scheme.zero_points) {
    const bool plain = scheme.weight == DType::u4 || scheme.weight == DType::u8;
    std::vector<std::uint8_t> zeros(elements);
    for (auto& zero : zeros)
      zero = static_cast<std::uint8_t>(bits == 4 ? random() % 16 - (plain ? 0U : 8U) : random());
    out.zero_points = owned_tensor(plain ? DType::u8 : DType::i8, {rows, groups}, std::move(zeros));
  }
  if (scheme.act_order == ActOrder::group) {
    std::vector<std::int32_t> index(static_cast<std::size_t>(k));
    for (std::size_t j = 0; j < index.size(); ++j)
      index[j] = static_cast<std::int32_t>(j / static_cast<std::size_t>(shape.cols));
    std::mt19937 order(static_cast<std::uint32_t>(k));
    std::ranges::shuffle(index, order);
    out.g_idx = owned_tensor(DType::i32, {k}, std::move(index));
  }
  EXPECT_TRUE(check_quantized(out));
  return out;
}

QuantizedTensor f32_matrix(std::int64_t n, std::int64_t k, std::vector<float> values) {
  return *make_plain(n, k, owned_tensor(DType::f32, {n, k}, std::move(values)));
}

MoeWeights random_weights(const LayerSpec& spec) {
  std::mt19937 random(spec.seed);
  MoeWeights weights{
      .hidden_size = spec.hidden_size, .intermediate_size = spec.intermediate_size, .experts = {}};
  const auto matrix = [&](std::int64_t n, std::int64_t k) {
    return spec.scheme ? random_scaled(*spec.scheme, n, k, random)
                       : random_matrix(spec.weight, n, k, random);
  };
  for (std::int64_t e = 0; e < spec.experts; ++e) {
    ExpertWeights expert;
    if (activation_gated(spec.activation.kind)) {
      expert.gate = matrix(spec.intermediate_size, spec.hidden_size);
    }
    expert.up = matrix(spec.intermediate_size, spec.hidden_size);
    expert.down = matrix(spec.hidden_size, spec.intermediate_size);
    if (spec.biases) {
      const auto width = static_cast<std::size_t>(spec.intermediate_size);
      if (expert.gate) expert.gate_bias = normal_values(width, 0.5F, random);
      expert.up_bias = normal_values(width, 0.5F, random);
      expert.down_bias = normal_values(static_cast<std::size_t>(spec.hidden_size), 0.5F, random);
    }
    weights.experts.push_back(std::move(expert));
  }
  return weights;
}

MoeProblem problem_of(const LayerSpec& spec, int top_k, std::int64_t max_tokens) {
  MoeProblem problem;
  problem.hidden_size = spec.hidden_size;
  problem.intermediate_size = spec.intermediate_size;
  problem.num_experts = spec.experts;
  problem.top_k = top_k;
  problem.gate_up = scheme_of(spec);
  problem.down = scheme_of(spec);
  problem.activation = spec.activation;
  problem.biases = spec.biases;
  problem.max_tokens = max_tokens;
  problem.where = "test layer";
  return problem;
}

Call random_call(const MoeProblem& problem, std::int64_t tokens, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto routes = static_cast<std::size_t>(tokens * problem.top_k);
  const auto values =
      normal_values(static_cast<std::size_t>(tokens * problem.hidden_size), 1.0F, random);
  Call call{.tokens = tokens, .hidden = {}, .ids = {}, .weights = {}, .expert_map = {}};
  call.hidden = to_f32(problem.activation_dtype, converted(problem.activation_dtype, values));
  for (std::size_t r = 0; r < routes; ++r) {
    call.ids.push_back(
        static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(problem.num_experts)));
    call.weights.push_back(static_cast<float>(random() % 1000) / 1000);
  }
  return call;
}

DeviceInfo generic_cpu() {
  DeviceInfo device;
  device.name = "test CPU";
  device.built_for = {"generic"};
  return device;
}

Result<MoeLayer> prepare(const std::string& backend, const MoeProblem& problem,
                         const MoeWeights& weights, const DeviceInfo& device, Executor& executor) {
  FEWBIT_TRY(const Selection selection, select_backend(problem, device, {.backend = backend}));
  return MoeLayer::prepare(selection, problem, weights, device, executor);
}

MoeArgs args_of(const MoeProblem& problem, const Call& call, std::span<const std::byte> hidden) {
  MoeArgs args;
  args.tokens = call.tokens;
  args.hidden = {.dtype = problem.activation_dtype,
                 .shape = {call.tokens, problem.hidden_size},
                 .bytes = hidden,
                 .device = {}};
  args.topk_ids = call.ids;
  args.topk_weights = call.weights;
  args.expert_map = call.expert_map;
  return args;
}

Result<std::vector<std::byte>> run(const MoeLayer& layer, const Call& call, Executor& executor,
                                   std::optional<AmaxTable> amax) {
  const MoeProblem& problem = layer.problem();
  const std::vector<std::byte> hidden = converted(problem.activation_dtype, call.hidden);
  FEWBIT_TRY(const std::uint64_t bytes, layer.workspace_bytes(call.tokens));
  Guarded workspace(bytes);
  Guarded out(hidden.size());
  MoeArgs args = args_of(problem, call, hidden);
  args.out = out.memory();
  args.amax = amax;
  args.workspace = workspace.memory();
  FEWBIT_TRY(layer.run(args, executor));
  EXPECT_TRUE(out.intact()) << "bytes beside the output were written";
  EXPECT_TRUE(workspace.intact()) << "bytes beside the workspace were written";
  return std::vector(out.memory().begin(), out.memory().end());
}

std::vector<float> to_f32(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() * 8 / static_cast<std::size_t>(dtype_bits(dtype)));
  EXPECT_TRUE(convert_to_f32(dtype, bytes, values));
  return values;
}

MoeReferenceInput input_of(const Call& call) {
  return {.tokens = call.tokens,
          .hidden = call.hidden,
          .topk_ids = call.ids,
          .topk_weights = call.weights,
          .expert_map = call.expert_map};
}

MoeReferenceResult expected(const MoeProblem& problem, const MoeWeights& weights,
                            const Call& call) {
  return *moe_reference(weights, input_of(call),
                        {.activation = problem.activation,
                         .router_weight_side = problem.router_weight_side,
                         .rounding = MoeRounding::none});
}

}  // namespace fewbit::test
