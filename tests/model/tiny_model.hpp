// SPDX-License-Identifier: Apache-2.0
// Small random Qwen3-MoE models: written as checkpoints, and computed in double, operation by
// operation, as the family is defined.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit::test {

struct TinyConfig {
  std::int64_t hidden = 32;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 8;
  std::int64_t vocab = 48;
  std::int64_t experts = 4;
  std::int64_t top_k = 2;
  std::int64_t expert_width = 16;
  std::int64_t dense_width = 24;
  std::int64_t max_positions = 160;
  std::int64_t dense_layer = -1;  // a layer with a dense MLP
  bool tied = false;
  bool renormalize = true;
  double theta = 500.0;
  double epsilon = 1e-5;
};

struct TinyTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::vector<float> values;
};

class TinyModel {
 public:
  // Weights drawn from the seed and rounded to dtype.
  explicit TinyModel(const TinyConfig& config, DType dtype = DType::f32, unsigned seed = 1);

  const TinyConfig& config() const { return config_; }
  std::map<std::string, TinyTensor>& tensors() { return tensors_; }
  Json& config_json() { return json_; }
  Result<void> write(const std::filesystem::path& directory) const;

  using Rows = std::vector<std::vector<double>>;  // [tokens][width]
  struct Outputs {
    std::vector<Rows> hidden_states;  // as Model::Trace
    Rows logits;
  };
  Outputs compute(const std::vector<std::int32_t>& ids) const;

 private:
  void add(const std::string& name, Shape shape, float center, float spread);
  const std::vector<float>& weight(const std::string& name) const;
  std::vector<double> multiply(const std::string& name, const std::vector<double>& x) const;
  std::vector<double> norm(const std::string& name, const std::vector<double>& x) const;
  Rows attention(const std::string& name, const Rows& x) const;
  std::vector<double> mlp(const std::string& name, const std::vector<double>& x) const;
  std::vector<double> moe(const std::string& name, const std::vector<double>& x) const;
  void rotate(std::vector<double>& head, std::size_t position) const;

  TinyConfig config_;
  DType dtype_;
  unsigned seed_;
  Json json_;
  std::map<std::string, TinyTensor> tensors_;
};

}  // namespace fewbit::test
