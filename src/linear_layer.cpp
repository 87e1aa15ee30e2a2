// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "fewbit/linear.hpp"
#include "select/backend.hpp"
#include "select/check_buffers.hpp"
#include "select/problem.hpp"
#include "select/select.hpp"

namespace fewbit {

LinearLayer::LinearLayer(LinearProblem problem, std::unique_ptr<PreparedLinear> prepared)
    : problem_(std::move(problem)), prepared_(std::move(prepared)) {}
LinearLayer::LinearLayer(LinearLayer&&) noexcept = default;
LinearLayer& LinearLayer::operator=(LinearLayer&&) noexcept = default;
LinearLayer::~LinearLayer() = default;

Result<LinearLayer> LinearLayer::prepare(const LinearProblem& problem,
                                         const QuantizedTensor& weight, const DeviceInfo& device,
                                         const SelectOptions& options, Executor& executor) {
  FEWBIT_TRY(const Selection selection, select_linear_backend(problem, device, options));
  FEWBIT_TRY(const Backend* backend, selected_backend(selection, problem, device));
  FEWBIT_TRY(check_weights(problem, weight));
  FEWBIT_TRY(auto prepared, backend->prepare_linear(problem, weight, device, executor));
  return LinearLayer(problem, std::move(prepared));
}

Result<std::uint64_t> LinearLayer::workspace_bytes(std::int64_t tokens) const {
  FEWBIT_TRY(check_tokens(problem_.where, tokens, problem_.max_tokens));
  return prepared_->workspace_bytes(tokens);
}

Result<std::uint64_t> LinearLayer::device_workspace_bytes(std::int64_t tokens) const {
  FEWBIT_TRY(check_tokens(problem_.where, tokens, problem_.max_tokens));
  const auto bytes = prepared_->device_workspace_bytes(tokens);
  if (bytes || !bytes.error().where.empty()) return bytes;
  return Error{bytes.error().code, bytes.error().what, problem_.where};
}

Result<void> LinearLayer::run(std::int64_t tokens, const TensorView& x, std::span<std::byte> y,
                              std::span<std::byte> workspace, Executor& executor,
                              void* stream) const {
  const DeviceKind memory = x.device.kind;
  FEWBIT_TRY(const std::uint64_t needed,
             memory == DeviceKind::cpu ? workspace_bytes(tokens) : device_workspace_bytes(tokens));
  FEWBIT_TRY(check_input(problem_.where, "x", x,
                         {.rows = tokens, .cols = problem_.k, .dtype = problem_.activation_dtype},
                         memory));
  FEWBIT_TRY(check_output(problem_.where, "y", y,
                          {.rows = tokens, .cols = problem_.n, .dtype = problem_.output_dtype}));
  FEWBIT_TRY(check_apart(problem_.where, x.bytes, y, workspace));
  FEWBIT_TRY(
      check_workspace(problem_.where, workspace, needed, memory == DeviceKind::cpu ? 64 : 1024));
  if (tokens == 0) return {};
  return prepared_->run(
      {.tokens = tokens, .x = x, .y = y, .workspace = workspace, .stream = stream}, executor);
}

PreparedInfo LinearLayer::info() const { return prepared_->info(); }

}  // namespace fewbit
