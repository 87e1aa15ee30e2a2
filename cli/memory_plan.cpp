// SPDX-License-Identifier: Apache-2.0
#include "memory_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "canonical/gguf_exact.hpp"
#include "command.hpp"
#include "inventory.hpp"
#include "select/backend.hpp"

namespace fewbit::cli {
namespace {

// Matrices of layers, which are multiplied; embeddings are looked up, norms are vectors.
bool is_multiplied(const Module& module) {
  return module.n > 0 && module.k > 0 && module.role != Role::embedding &&
         module.role != Role::norm && module.role != Role::router_bias &&
         module.role != Role::other;
}

const Backend* backend_for(const Module& module, const DeviceInfo& device) {
  const LinearProblem problem{module.n,    module.k, module.scheme, DType::bf16,
                              DType::bf16, 1,        module.name};
  for (const Backend* backend : all_backends()) {
    if (backend->linear_refusals(problem, device).empty()) return backend;
  }
  return nullptr;
}

// nullptr: none runs it.
class BackendChoice {
 public:
  BackendChoice(const MoeLayers& layers, const DeviceInfo& device) : device_(device) {
    for (const auto& [layer, problem] : layers) {
      if (!problem) continue;
      const auto selection = select_backend(*problem, device);
      if (selection) of_experts_[layer] = find_backend(selection->chosen);
    }
  }
  const Backend* of(const Module& module) {
    if (!module.unreadable.empty()) return nullptr;
    if (module.expert != -1) {
      const auto found = of_experts_.find(module.layer);
      return found == of_experts_.end() ? nullptr : found->second;
    }
    // Often the same question again.
    const bool same = last_ != nullptr && last_->n == module.n && last_->k == module.k &&
                      last_->scheme == module.scheme;
    if (!same) backend_ = backend_for(module, device_);
    last_ = &module;
    return backend_;
  }

 private:
  const DeviceInfo& device_;
  std::map<int, const Backend*> of_experts_;  // by layer
  const Module* last_ = nullptr;
  const Backend* backend_ = nullptr;
};

// Experts in blocks of GGUF are prepared with codes and scales apart.
Scheme prepared_scheme(const Module& module) {
  if (module.expert == -1) return module.scheme;
  return gguf_exact_scheme(module.scheme).value_or(module.scheme);
}

}  // namespace

MemoryPlan plan_memory(const Checkpoint& checkpoint, const Identified& identified,
                       const MoeLayers& layers, const DeviceInfo& device) {
  MemoryPlan plan;
  plan.stored = checkpoint.total_bytes();
  BackendChoice choice(layers, device);
  for (const Module& module : identified.modules) {
    if (!is_multiplied(module)) continue;
    const std::uint64_t stored = module_bytes(checkpoint, module);
    const Backend* backend = choice.of(module);
    if (backend == nullptr) {
      plan.without += stored;
      continue;
    }
    ++plan.matrices[backend->name];
    const auto packed = backend->packed_bytes != nullptr
                            ? backend->packed_bytes(prepared_scheme(module), module.n, module.k)
                            : std::uint64_t{0};
    if (packed.value_or(0) == 0) {
      plan.in_place += stored;
      continue;
    }
    plan.packed += *packed * static_cast<std::uint64_t>(std::max<std::int64_t>(module.experts, 1));
    plan.replaced += stored;
  }
  return plan;
}

std::string memory_text(const MemoryPlan& plan) {
  std::string text = fmt::format("{} as stored", bytes_text(plan.stored));
  const std::string in_place = bytes_text(plan.prepared() - plan.packed - plan.without);
  if (plan.packed > 0) {
    text += fmt::format("; run from {}: {} packed, {} read in place", bytes_text(plan.prepared()),
                        bytes_text(plan.packed), in_place);
  } else if (plan.in_place > 0) {
    text += plan.without > 0 ? ", " + in_place + " read in place" : ", all of it read in place";
  }
  if (plan.without > 0) {
    text += fmt::format("; no backend runs {} of it", bytes_text(plan.without));
  }
  return text;
}

Json memory_json(const MemoryPlan& plan) {
  Json backends{Json::Object{}};
  for (const auto& [name, count] : plan.matrices) backends.set(name, count);
  Json out;
  out.set("stored", plan.stored);
  out.set("prepared", plan.prepared());
  out.set("packed", plan.packed);
  out.set("not_runnable", plan.without);
  out.set("matrices_by_backend", backends);
  return out;
}

}  // namespace fewbit::cli
