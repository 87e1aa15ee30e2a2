// SPDX-License-Identifier: Apache-2.0
// The forward pass in double.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/tiny_model.hpp"

namespace fewbit::test {
namespace {

using Vector = std::vector<double>;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void add_scaled(Vector& to, double factor, const Vector& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

Vector softmax(Vector x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value - largest);
  for (double& value : x) value /= sum;
  return x;
}

Vector head_of(const Vector& row, std::int64_t head, std::int64_t dim) {
  const auto begin = row.begin() + head * dim;
  return {begin, begin + dim};
}

}  // namespace

Vector TinyModel::multiply(const std::string& name, const Vector& x) const {
  const auto& w = weight(name + ".weight");
  Vector y(w.size() / x.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += double{w[i * x.size() + j]} * x[j];
  }
  return y;
}

Vector TinyModel::norm(const std::string& name, const Vector& x) const {
  const auto& w = weight(name + ".weight");
  const double mean = dot(x, x) / static_cast<double>(x.size());
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] / std::sqrt(mean + config_.epsilon) * double{w[i]};
  }
  return y;
}

// Each pair (i, i + dim/2) is turned by position * theta^(-2i/dim).
void TinyModel::rotate(Vector& head, std::size_t position) const {
  const std::size_t half = head.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(config_.theta, -static_cast<double>(i) / static_cast<double>(half));
    const double a = head[i];
    const double b = head[i + half];
    head[i] = a * std::cos(angle) - b * std::sin(angle);
    head[i + half] = a * std::sin(angle) + b * std::cos(angle);
  }
}

TinyModel::Rows TinyModel::attention(const std::string& name, const Rows& x) const {
  const std::int64_t dim = config_.head_dim;
  Rows out;
  std::vector<Rows> keys(size(config_.kv_heads));
  std::vector<Rows> values(size(config_.kv_heads));
  for (std::size_t t = 0; t < x.size(); ++t) {
    const Vector k = multiply(name + ".k_proj", x[t]);
    const Vector v = multiply(name + ".v_proj", x[t]);
    for (std::int64_t h = 0; h < config_.kv_heads; ++h) {
      keys[size(h)].push_back(norm(name + ".k_norm", head_of(k, h, dim)));
      rotate(keys[size(h)].back(), t);
      values[size(h)].push_back(head_of(v, h, dim));
    }
    const Vector all_q = multiply(name + ".q_proj", x[t]);
    Vector context;
    for (std::int64_t h = 0; h < config_.heads; ++h) {
      Vector q = norm(name + ".q_norm", head_of(all_q, h, dim));
      rotate(q, t);
      const std::size_t kv = size(h * config_.kv_heads / config_.heads);
      Vector scores;
      for (const Vector& key : keys[kv]) {
        scores.push_back(dot(q, key) / std::sqrt(static_cast<double>(dim)));
      }
      const Vector p = softmax(scores);
      Vector head(size(dim));
      for (std::size_t s = 0; s < p.size(); ++s) add_scaled(head, p[s], values[kv][s]);
      context.insert(context.end(), head.begin(), head.end());
    }
    out.push_back(multiply(name + ".o_proj", context));
  }
  return out;
}

Vector TinyModel::mlp(const std::string& name, const Vector& x) const {
  Vector gate = multiply(name + ".gate_proj", x);
  const Vector up = multiply(name + ".up_proj", x);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0 + std::exp(-gate[i]));
  return multiply(name + ".down_proj", gate);
}

Vector TinyModel::moe(const std::string& name, const Vector& x) const {
  const Vector p = softmax(multiply(name + ".gate", x));
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  order.resize(size(config_.top_k));
  double sum = 0;
  for (const std::size_t expert : order) sum += p[expert];
  Vector y(x.size());
  for (const std::size_t expert : order) {
    add_scaled(y, config_.renormalize ? p[expert] / sum : p[expert],
               mlp(name + ".experts." + std::to_string(expert), x));
  }
  return y;
}

TinyModel::Outputs TinyModel::compute(const std::vector<std::int32_t>& ids) const {
  const auto& embedding = weight("model.embed_tokens.weight");
  Rows x;
  for (const std::int32_t id : ids) {
    const auto row = embedding.begin() + id * config_.hidden;
    x.emplace_back(row, row + config_.hidden);
  }
  Outputs out;
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    out.hidden_states.push_back(x);
    const std::string layer = "model.layers." + std::to_string(i);
    Rows normed;
    for (const Vector& row : x) normed.push_back(norm(layer + ".input_layernorm", row));
    const Rows attended = attention(layer + ".self_attn", normed);
    for (std::size_t t = 0; t < x.size(); ++t) {
      add_scaled(x[t], 1.0, attended[t]);
      const Vector h = norm(layer + ".post_attention_layernorm", x[t]);
      add_scaled(x[t], 1.0,
                 i == config_.dense_layer ? mlp(layer + ".mlp", h) : moe(layer + ".mlp", h));
    }
  }
  for (Vector& row : x) {
    row = norm("model.norm", row);
    out.logits.push_back(multiply(config_.tied ? "model.embed_tokens" : "lm_head", row));
  }
  out.hidden_states.push_back(x);
  return out;
}

}  // namespace fewbit::test
