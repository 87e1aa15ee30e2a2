// SPDX-License-Identifier: Apache-2.0
// What a family takes its weights from: every tensor checked against the config by name and
// number, every matrix prepared for the backend that runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/linear.hpp"
#include "fewbit/model.hpp"
#include "fewbit/moe.hpp"
#include "fewbit/prepare.hpp"
#include "fewbit/scheme.hpp"
#include "model/rms_norm.hpp"

namespace fewbit {

class WeightReader {
 public:
  struct Source {
    Checkpoint checkpoint;
    Identified identified;
    ModelConfig config;
    ModelOptions options;
    DeviceInfo device;         // of everything but
    DeviceInfo expert_device;  // the routed experts
    Executor* executor = nullptr;
    std::shared_ptr<const PreparedModel> prepared = nullptr;  // holds the experts
  };
  explicit WeightReader(Source source) : source_(std::move(source)) {}

  const ModelConfig& config() const { return source_.config; }
  DType activation_dtype() const { return source_.options.activation_dtype; }
  const DeviceInfo& device() const { return source_.device; }
  int threads() const { return source_.executor->threads(); }
  bool has_module(const std::string& name) const {
    return source_.identified.find(name) != nullptr;
  }

  // Shapes as the config wants them; `n` and `k` as in QuantizedTensor.
  struct MatrixShape {
    std::int64_t n = 0;
    std::int64_t k = 0;
  };
  // All errors name the tensor: not_found, corrupt (shape or dtype, found and expected),
  // unsupported (a module that isn't readable, or that has a bias).
  Result<RmsNorm> norm(const std::string& module, std::int64_t width);
  Result<QuantizedTensor> matrix(const std::string& module, MatrixShape shape);
  Result<LinearLayer> linear(const std::string& module, MatrixShape shape, DType output_dtype);
  // The routed experts of a layer, whose modules begin with `prefix`
  // ("model.layers.0.mlp.experts"). Once packed, their pages of the checkpoint are let go. Those of
  // a prepared model are opened.
  Result<MoeLayer> experts(int layer, const std::string& prefix);

  // Whether the experts have taken their router, which the config describes; they have not where
  // their backend has none.
  Result<bool> add_router(MoeLayer& experts, const QuantizedTensor& projection);

  // Once all is read. Error unsupported lists the tensors that nothing has asked for, though they
  // would change the results.
  Result<void> all_used() const;

  // Adds to the report; error cancelled when the progress callback says so.
  Result<void> prepared(std::uint64_t checkpoint_bytes);
  // The embedding is read in place, row by row.
  void count_mapped(const QuantizedTensor& tensor);
  const ModelReport& report() const { return report_; }

 private:
  Result<const Module*> readable_module(const std::string& name, const std::string& expected) const;
  Result<MoeLayer> prepared_experts(int layer, const std::string& prefix);
  Result<void> finish_experts(int layer, const MoeLayer& experts);

  void mark_used(const Module& module);

  Source source_;
  std::unordered_set<std::string> used_;  // names of tensors
  ModelReport report_;
  std::uint64_t prepared_bytes_ = 0;
};

}  // namespace fewbit
