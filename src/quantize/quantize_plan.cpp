// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/quote.hpp"
#include "quantize/nvfp4.hpp"
#include "scheme/fused_experts.hpp"
#include "scheme/model_hints.hpp"

namespace fewbit {
namespace {

bool is_selected(const Module& module, const QuantizeOptions& options) {
  if (module.layer < 0) return false;  // of token-prediction heads
  switch (module.role) {
    case Role::gate_proj:
    case Role::up_proj:
    case Role::down_proj:
    case Role::gate_up_proj:
      return options.experts && module.expert != -1;
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
    case Role::o_proj:
      return options.attention;
    default:
      return false;
  }
}

Result<void> check_module(const Module& module, const TensorInfo& weight,
                          const std::string& model_type) {
  if (!module.unreadable.empty()) {
    return Error{ErrorCode::unsupported, module.unreadable, module.name};
  }
  // What reads NVFP4 with the inputs first knows from the family that they are.
  if (module.transposed && !stores_inputs_first(model_type)) {
    return Error{
        ErrorCode::unsupported,
        fmt::format("weights are {}, each matrix [in, out], which model_type {} of "
                    "config.json does not tell; expected [experts, out, in] = [{}, {}, {}]",
                    shape_text(weight.shape), quote(model_type), module.experts, module.n,
                    module.k),
        weight.name};
  }
  const std::size_t rank = module.experts > 0 ? 3 : 2;
  if (weight.shape.size() != rank) {
    return Error{ErrorCode::unsupported,
                 fmt::format("weights are {}, expected a matrix {}", shape_text(weight.shape),
                             rank == 3 ? "[experts, rows, columns]" : "[rows, columns]"),
                 weight.name};
  }
  if (module.n < 1 || module.k < 1 || module.k % nvfp4_group_size != 0) {
    return Error{ErrorCode::unsupported,
                 fmt::format("matrix is [{}, {}], expected columns in a multiple of {}", module.n,
                             module.k, nvfp4_group_size),
                 module.name};
  }
  return {};
}

// "up_proj.weight" -> "up_proj.weight_scale"; fused experts without a suffix get an underscore.
std::string scale_name(const std::string& weight, std::string_view suffix) {
  const bool has_suffix = weight.ends_with(".weight");
  return weight + (has_suffix ? "" : "_weight") + std::string(suffix);
}

// [.., n, k / values], or [.., k / values, n] where the inputs come first.
Shape packed_shape(const Module& module, std::int64_t values) {
  Shape shape = {module.n, module.k / values};
  if (module.transposed) std::swap(shape[0], shape[1]);
  if (module.experts > 0) shape.insert(shape.begin(), module.experts);
  return shape;
}

// The same for parts that engines fuse.
std::string fused_name(const Module& module) {
  const std::string parent = module.name.substr(0, module.name.rfind('.') + 1);
  switch (module.role) {
    case Role::gate_proj:
    case Role::up_proj:
      return fmt::format("{}gate_up of {}", parent, module.expert);
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
      return parent + "qkv";
    default:
      return module.name;
  }
}

// Place in plan.jobs, by fused_name() and slice.
using Shares = std::unordered_map<std::string, std::size_t>;

void add_module(const Module& module, const TensorInfo& weight, Shares& shares,
                QuantizePlan& plan) {
  const bool fused = module.experts > 0;
  MatrixJob job{&weight,
                module.n,
                module.k,
                0,
                module.transposed,
                weight.name,
                scale_name(weight.name, "_scale"),
                scale_name(weight.name, "_scale_2")};
  plan.outputs.push_back({job.weight, DType::u8, packed_shape(module, 2)});
  plan.outputs.push_back({job.scale, DType::f8_e4m3, packed_shape(module, nvfp4_group_size)});
  plan.outputs.push_back({job.global, DType::f32, fused ? Shape{module.experts} : Shape{}});
  ++plan.quantized_tensors;
  for (std::int64_t e = 0; e < std::max<std::int64_t>(module.experts, 1); ++e) {
    job.slice = e;
    const auto [share, added] =
        shares.try_emplace(fmt::format("{}[{}]", fused_name(module), e), plan.jobs.size());
    if (added) plan.jobs.emplace_back();
    plan.jobs[share->second].push_back(job);
  }
}

// Linear layers that are left alone. Their loaders must be told so.
bool is_ignored(const Module& module) {
  return module.k > 0 && module.role != Role::embedding && module.role != Role::norm;
}

std::tuple<std::int32_t, std::uint64_t> place(const TensorInfo* info) {
  return {info->shard, info->file_offset};
}

void keep_rest(const Checkpoint& source, const std::unordered_set<std::string_view>& replaced,
               QuantizePlan& plan) {
  for (const TensorInfo& info : source.tensors()) {
    if (replaced.contains(info.name)) continue;
    plan.kept.push_back(&info);
    plan.outputs.push_back({info.name, info.dtype, info.shape});
  }
}

// As they lie in the source.
void sort_by_place(QuantizePlan& plan) {
  std::sort(plan.kept.begin(), plan.kept.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return place(a) < place(b); });
  const auto before = [](const MatrixJob& a, const MatrixJob& b) {
    return place(a.source) < place(b.source);
  };
  for (SharedJobs& jobs : plan.jobs) std::stable_sort(jobs.begin(), jobs.end(), before);
  std::stable_sort(plan.jobs.begin(), plan.jobs.end(),
                   [&](const SharedJobs& a, const SharedJobs& b) { return before(a[0], b[0]); });
}

}  // namespace

Result<QuantizePlan> plan_quantization(const Checkpoint& source, const Identified& identified,
                                       const QuantizeOptions& options) {
  if (identified.producer != Producer::unquantized) {
    return Error{ErrorCode::unsupported,
                 fmt::format("already quantized ({}): {}; expected 16-bit or 32-bit weights",
                             producer_name(identified.producer), identified.producer_evidence),
                 source.directory().string()};
  }
  FEWBIT_TRY(const std::shared_ptr<const Json> config, source.json_file("config.json"));
  const std::string model_type =
      config != nullptr ? read_model_hints(*config).model_type : std::string();
  QuantizePlan plan;
  std::unordered_set<std::string_view> replaced;
  Shares shares;
  bool has_head = false;
  for (const Module& module : identified.modules) {
    has_head = has_head || module.role == Role::head;
    if (!is_selected(module, options)) {
      if (is_ignored(module)) plan.ignored.push_back(module.name);
      continue;
    }
    const TensorInfo* weight = source.find(module.part("weight"));
    if (weight == nullptr) continue;
    FEWBIT_TRY(check_module(module, *weight, model_type));
    replaced.insert(weight->name);
    add_module(module, *weight, shares, plan);
  }
  if (plan.jobs.empty()) {
    return Error{ErrorCode::not_found,
                 fmt::format("no matrix to quantize among {} modules (experts: {}, attention: {})",
                             identified.modules.size(), options.experts, options.attention),
                 source.directory().string()};
  }
  // A tied head has no tensor, but loaders ask about it all the same.
  if (!has_head) plan.ignored.emplace_back("lm_head");
  std::sort(plan.ignored.begin(), plan.ignored.end());
  keep_rest(source, replaced, plan);
  sort_by_place(plan);
  return plan;
}

}  // namespace fewbit
