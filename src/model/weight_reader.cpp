// SPDX-License-Identifier: Apache-2.0
#include "model/weight_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/convert.hpp"
#include "core/float_types.hpp"
#include "fewbit/quantized.hpp"
#include "model/element.hpp"
#include "prepared/check_folder.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/unused_tensors.hpp"
#include "scheme/zero_bias.hpp"
#include "select/select.hpp"

namespace fewbit {

Result<RmsNorm> WeightReader::norm(const std::string& module, std::int64_t width) {
  const std::string name = module + ".weight";
  const TensorInfo* info = source_.checkpoint.find(name);
  const Shape expected{width};
  if (info == nullptr) {
    return Error{ErrorCode::not_found,
                 fmt::format("tensor is missing, expected shape {}", shape_text(expected)), name};
  }
  if (info->shape != expected) {
    return Error{ErrorCode::corrupt,
                 fmt::format("shape is {}, config.json needs {}", shape_text(info->shape),
                             shape_text(expected)),
                 name};
  }
  if (!is_16_or_32_bit_float(info->dtype)) {
    return Error{ErrorCode::corrupt,
                 fmt::format("dtype is {}, expected bf16, f16 or f32", dtype_name(info->dtype)),
                 name};
  }
  if (const Module* found = source_.identified.find(module);
      found != nullptr && !found->unreadable.empty()) {
    return Error{ErrorCode::unsupported, found->unreadable, module};
  }
  used_.insert(name);
  if (const Module* found = source_.identified.find(module);
      found != nullptr && has_zero_bias(source_.checkpoint, *found)) {
    used_.insert(std::string(found->part("bias")));
  }
  RmsNorm norm{std::vector<float>(to_size(width)), static_cast<float>(source_.config.rms_norm_eps)};
  FEWBIT_TRY(convert_to_f32(info->dtype, source_.checkpoint.tensor(*info).view.bytes, norm.weight));
  FEWBIT_TRY(prepared(info->bytes));
  return norm;
}

Result<const Module*> WeightReader::readable_module(const std::string& name,
                                                    const std::string& expected) const {
  const Module* module = source_.identified.find(name);
  if (module == nullptr) {
    return Error{ErrorCode::not_found,
                 fmt::format("tensor is missing, expected shape {}", expected), name + ".weight"};
  }
  if (!module->unreadable.empty()) {
    return Error{ErrorCode::unsupported, module->unreadable, name};
  }
  const std::string_view bias = module->part("bias");
  if (!bias.empty() && !has_zero_bias(source_.checkpoint, *module)) {
    return Error{ErrorCode::unsupported,
                 fmt::format("model_type {} has no bias here", source_.config.model_type),
                 std::string(bias)};
  }
  return module;
}

Result<QuantizedTensor> WeightReader::matrix(const std::string& module, MatrixShape shape) {
  const std::string expected = shape_text(Shape{shape.n, shape.k});
  FEWBIT_TRY(const Module* found, readable_module(module, expected));
  FEWBIT_TRY(QuantizedTensor tensor, canonicalize(source_.checkpoint, *found));
  if (tensor.n != shape.n || tensor.k != shape.k) {
    return Error{ErrorCode::corrupt,
                 fmt::format("shape is {}, config.json needs {}",
                             shape_text(Shape{tensor.n, tensor.k}), expected),
                 std::string(found->part("weight"))};
  }
  if (!tensor.scheme.quantized() && !is_plain_float(tensor.scheme.weight)) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("dtype is {}, expected bf16, f16 or f32", dtype_name(tensor.scheme.weight)),
        std::string(found->part("weight"))};
  }
  mark_used(*found);
  return tensor;
}

void WeightReader::mark_used(const Module& module) {
  for (const Module::Part& part : module.parts) {
    // A bias that got here is all zeros.
    const bool read = part.suffix == "weight" || part.suffix == "bias";
    if (read || is_quantization_suffix(part.suffix)) used_.insert(part.tensor);
  }
}

Result<void> WeightReader::all_used() const {
  const std::vector<std::string> unused =
      unused_tensors(source_.checkpoint, source_.identified, source_.config, used_);
  if (unused.empty()) return {};
  constexpr std::size_t shown = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(unused.size(), shown); ++i) {
    names += (i == 0 ? "" : ", ") + unused[i];
  }
  if (unused.size() > shown) names += fmt::format(" and {} more", unused.size() - shown);
  return Error{ErrorCode::unsupported,
               fmt::format("model_type {} does not know {} of {} tensors, and leaving them out "
                           "would be wrong: {}",
                           source_.config.model_type, unused.size(),
                           source_.checkpoint.tensors().size(), names),
               source_.checkpoint.directory().string()};
}

Result<LinearLayer> WeightReader::linear(const std::string& module, MatrixShape shape,
                                         DType output_dtype) {
  FEWBIT_TRY(const QuantizedTensor weight, matrix(module, shape));
  const LinearProblem problem{.n = shape.n,
                              .k = shape.k,
                              .weight = weight.scheme,
                              .activation_dtype = activation_dtype(),
                              .output_dtype = output_dtype,
                              .max_tokens = source_.options.max_tokens,
                              .where = module};
  // Quantized layers go to the experts' GPU, where its backends run them.
  const bool on_gpu = weight.scheme.quantized() && source_.expert_device.kind == DeviceKind::cuda &&
                      select_linear_backend(problem, source_.expert_device, {}).has_value();
  FEWBIT_TRY(LinearLayer layer,
             LinearLayer::prepare(problem, weight, on_gpu ? source_.expert_device : source_.device,
                                  {}, *source_.executor));
  ++(on_gpu ? report_.dense_on_gpu : report_.dense_on_cpu);
  const PreparedInfo info = layer.info();
  report_.owned_bytes += info.owned_bytes;
  report_.mapped_bytes += info.mapped_bytes;
  FEWBIT_TRY(prepared(weight.codes.view.bytes.size() + weight.scales.view.bytes.size()));
  return layer;
}

Result<MoeLayer> WeightReader::prepared_experts(int layer, const std::string& prefix) {
  const ModelConfig& config = source_.config;
  FEWBIT_TRY(PreparedModel::Layer opened,
             source_.prepared->layer(layer, activation_dtype(), source_.options.max_tokens,
                                     source_.expert_device, {source_.options.backend}));
  const MoeProblem& problem = opened.experts.problem();
  FEWBIT_TRY(check_against_config(problem, problem.num_experts, config, prefix));
  const PreparedInfo info = opened.experts.info();
  report_.owned_bytes += info.owned_bytes;
  report_.mapped_bytes += info.mapped_bytes;
  if (report_.moe_selections.empty()) report_.moe_problem = problem;
  report_.moe_selections.push_back(std::move(opened.selection));
  FEWBIT_TRY(prepared(info.mapped_bytes));
  return std::move(opened.experts);
}

Result<MoeLayer> WeightReader::experts(int layer, const std::string& prefix) {
  if (source_.prepared) return prepared_experts(layer, prefix);
  for (const Module& module : source_.identified.modules) {
    if (module.layer == layer && module.expert != -1) {
      FEWBIT_TRY(readable_module(module.name, ""));
    }
  }
  FEWBIT_TRY(const MoeWeights weights, gather_moe(source_.checkpoint, source_.identified, layer));
  for (const Module& module : source_.identified.modules) {
    const bool read = module.role == Role::gate_proj || module.role == Role::up_proj ||
                      module.role == Role::down_proj || module.role == Role::gate_up_proj;
    if (module.layer == layer && module.expert != -1 && read) mark_used(module);
  }
  const ModelConfig& config = source_.config;
  if (static_cast<std::int64_t>(weights.experts.size()) != config.num_experts) {
    return Error{
        ErrorCode::inconsistent,
        fmt::format("{} experts, config.json needs {}", weights.experts.size(), config.num_experts),
        prefix};
  }
  Result<MoeProblem> made =
      make_problem(weights, config, activation_dtype(), source_.options.max_tokens);
  if (!made) return Error{made.error().code, made.error().what, prefix};
  MoeProblem& problem = *made;
  problem.where = prefix;
  FEWBIT_TRY(const Selection selection,
             select_backend(problem, source_.expert_device, {source_.options.backend}));
  FEWBIT_TRY(MoeLayer experts, MoeLayer::prepare(selection, problem, weights, source_.expert_device,
                                                 *source_.executor));
  if (report_.moe_selections.empty()) report_.moe_problem = problem;
  report_.moe_selections.push_back(selection);
  FEWBIT_TRY(finish_experts(layer, experts));
  return experts;
}

Result<bool> WeightReader::add_router(MoeLayer& experts, const QuantizedTensor& projection) {
  if (source_.expert_device.kind != DeviceKind::cuda) return false;
  const Result<void> added =
      experts.add_router({.params = source_.config.router, .projection = projection, .bias = {}});
  if (!added && added.error().code != ErrorCode::unsupported) return added.error();
  if (!added) return false;
  ++report_.dense_on_gpu;
  FEWBIT_TRY(prepared(projection.codes.view.bytes.size()));
  return true;
}

Result<void> WeightReader::finish_experts(int layer, const MoeLayer& experts) {
  const PreparedInfo info = experts.info();
  report_.owned_bytes += info.owned_bytes;
  report_.mapped_bytes += info.mapped_bytes;
  std::uint64_t bytes = 0;
  for (const Module& module : source_.identified.modules) {
    if (module.layer != layer || module.expert == -1) continue;
    for (const Module::Part& part : module.parts) {
      const TensorInfo* tensor = source_.checkpoint.find(part.tensor);
      if (tensor == nullptr) continue;
      bytes += tensor->bytes;
      if (info.mapped_bytes == 0) source_.checkpoint.release(*tensor);
    }
  }
  return prepared(bytes);
}

void WeightReader::count_mapped(const QuantizedTensor& tensor) {
  report_.mapped_bytes += tensor.codes.view.bytes.size() + tensor.scales.view.bytes.size();
}

Result<void> WeightReader::prepared(std::uint64_t checkpoint_bytes) {
  report_.checkpoint_bytes = source_.checkpoint.total_bytes();
  if (source_.prepared) report_.checkpoint_bytes += source_.prepared->bytes();
  prepared_bytes_ = std::min(prepared_bytes_ + checkpoint_bytes, report_.checkpoint_bytes);
  const ProgressFn& progress = source_.options.progress;
  if (progress && !progress(prepared_bytes_, report_.checkpoint_bytes)) {
    return Error{
        ErrorCode::cancelled,
        fmt::format("stopped after {} of {} bytes", prepared_bytes_, report_.checkpoint_bytes),
        source_.checkpoint.directory().string()};
  }
  return {};
}

}  // namespace fewbit
