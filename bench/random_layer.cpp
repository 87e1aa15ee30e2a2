// SPDX-License-Identifier: Apache-2.0
#include "bench/random_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/gguf_types.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"
#include "select/problem_list.hpp"

namespace fewbit::bench {
namespace {

std::int64_t groups(std::int64_t size, std::int64_t each) {
  return each <= 0 ? 1 : ceil_div(size, each);
}

// Columns of every group, mixed: the same for all matrices of a width.
Result<Tensor> random_order(std::int64_t k, std::int64_t group) {
  std::vector<std::int32_t> index(static_cast<std::size_t>(k));
  for (std::size_t j = 0; j < index.size(); ++j)
    index[j] = static_cast<std::int32_t>(static_cast<std::int64_t>(j) / group);
  std::mt19937_64 order(static_cast<std::uint64_t>(k));
  std::ranges::shuffle(index, order);
  FEWBIT_TRY(OwnedTensor owned, allocate_tensor(DType::i32, {k}));
  std::memcpy(owned.bytes.data(), index.data(), owned.bytes.size());
  return owned.tensor;
}

// Bytes of 0 to 63, which are finite numbers as f16 scales too.
Result<QuantizedTensor> random_blocks(const Scheme& scheme, std::int64_t n, std::int64_t k,
                                      std::mt19937_64& random) {
  const auto types = gguf_types_of(*scheme.ggml_type);
  const std::int64_t elements = types.empty() ? 0 : types.front().elements;
  if (elements < 1 || k % elements != 0) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} columns in blocks of {}", k, elements), scheme_text(scheme)};
  }
  FEWBIT_TRY(OwnedTensor codes,
             allocate_tensor(DType::u8, {n, k / elements * types.front().bytes}));
  for (std::byte& byte : codes.bytes) byte = static_cast<std::byte>(random() >> 58);
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme = scheme;
  out.codes = std::move(codes.tensor);
  FEWBIT_TRY(check_quantized(out));
  return out;
}

Result<QuantizedTensor> random_matrix(const Scheme& scheme, std::int64_t n, std::int64_t k,
                                      std::mt19937_64& random) {
  if (scheme.ggml_type) return random_blocks(scheme, n, k, random);
  if (!scheme.scale) {
    FEWBIT_TRY(Tensor values, random_tensor(scheme.weight, {n, k}, Fill::numbers, random));
    return make_plain(n, k, std::move(values));
  }
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme = scheme;
  const Granularity& shape = scheme.scale->granularity;
  const Shape grid = {groups(n, shape.rows), groups(k, shape.cols)};
  FEWBIT_TRY(out.codes, random_tensor(scheme.weight, {n, k}, Fill::bits, random));
  FEWBIT_TRY(out.scales, random_tensor(scheme.scale->dtype, grid, Fill::scales, random));
  if (scheme.zero_points) {
    FEWBIT_TRY(OwnedTensor zeros, allocate_tensor(DType::u8, grid));
    for (std::byte& zero : zeros.bytes) zero = static_cast<std::byte>(random() % 16);
    out.zero_points = std::move(zeros.tensor);
  }
  if (scheme.act_order == ActOrder::group && shape.cols > 0) {
    FEWBIT_TRY(out.g_idx, random_order(k, shape.cols));
  }
  FEWBIT_TRY(check_quantized(out));
  return out;
}

std::vector<float> random_bias(std::int64_t size, std::mt19937_64& random) {
  std::uniform_real_distribution<float> uniform(-0.05F, 0.05F);
  std::vector<float> bias(static_cast<std::size_t>(size));
  for (float& value : bias) value = uniform(random);
  return bias;
}

}  // namespace

Result<Tensor> random_tensor(DType dtype, Shape shape, Fill fill, std::mt19937_64& random) {
  FEWBIT_TRY(OwnedTensor owned, allocate_tensor(dtype, std::move(shape)));
  const std::span<std::byte> bytes = owned.bytes;
  if (fill == Fill::bits) {
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random() >> 32);
      const bool nan = dtype == DType::f8_e4m3 && (byte | std::byte{0x80}) == std::byte{0xff};
      if (nan) byte ^= std::byte{1};
    }
    return owned.tensor;
  }
  std::uniform_real_distribution<float> uniform(fill == Fill::scales ? 0.005F : -0.05F, 0.05F);
  std::vector<float> values(bytes.size() * 8 / static_cast<std::size_t>(dtype_bits(dtype)));
  for (float& value : values) value = uniform(random);
  FEWBIT_TRY(convert_from_f32(values, dtype, bytes));
  return owned.tensor;
}

Result<QuantizedTensor> random_matrix(const LayerShape& shape, std::mt19937_64& random) {
  FEWBIT_TRY(const Scheme scheme, scheme_from_name(shape.scheme));
  return random_matrix(scheme, shape.linear->out_features, shape.linear->in_features, random);
}

Result<MoeWeights> random_weights(const LayerShape& shape, std::mt19937_64& random) {
  FEWBIT_TRY(const Scheme scheme, scheme_from_name(shape.scheme));
  MoeWeights weights{.hidden_size = shape.hidden_size,
                     .intermediate_size = shape.intermediate_size,
                     .experts = {}};
  for (std::int64_t e = 0; e < shape.num_experts; ++e) {
    if (e > 0 && (scheme.scale || scheme.ggml_type)) {
      weights.experts.push_back(weights.experts.front());
      continue;
    }
    ExpertWeights expert;
    const std::int64_t width = shape.intermediate_size;
    FEWBIT_TRY(expert.gate, random_matrix(scheme, width, shape.hidden_size, random));
    FEWBIT_TRY(expert.up, random_matrix(scheme, width, shape.hidden_size, random));
    FEWBIT_TRY(expert.down, random_matrix(scheme, shape.hidden_size, width, random));
    if (shape.biases) {
      expert.gate_bias = random_bias(width, random);
      expert.up_bias = random_bias(width, random);
      expert.down_bias = random_bias(shape.hidden_size, random);
    }
    weights.experts.push_back(std::move(expert));
  }
  return weights;
}

}  // namespace fewbit::bench
