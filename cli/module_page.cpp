// SPDX-License-Identifier: Apache-2.0
#include "module_page.hpp"

#include <fmt/format.h>

#include "core/counted.hpp"
#include "table.hpp"
#include "tensor_stats.hpp"

namespace fewbit::cli {
namespace {

const char* slices_name(const Module& module) {
  return module.expert == -1 ? "matrices" : "experts";
}

std::string place_text(const Module& module) {
  std::string text = role_name(module.role);
  if (module.layer >= 0) text += fmt::format(", layer {}", module.layer);
  if (module.expert >= 0) text += fmt::format(", expert {}", module.expert);
  if (module.experts > 0)
    text += fmt::format(", {} {} in one tensor", module.experts, slices_name(module));
  return text;
}

std::string order_text(const Module& module) {
  std::string text;
  if (module.transposed) text += "; stored transposed";
  if (module.role == Role::gate_up_proj || module.role == Role::shared_gate_up_proj) {
    text += module.alternating ? "; rows of gate and up in turn" : "; rows of gate, then of up";
  }
  return text;
}

// Of an expert alone; its scales are null where blocks hold them.
struct ExpertStats {
  QuantizedTensor matrix;
  TensorStats weights;
  std::optional<TensorStats> scales;
};

Result<ExpertStats> expert_stats(const Checkpoint& checkpoint, const Module& module,
                                 std::int64_t expert) {
  if (module.experts == 0) {
    return Error{ErrorCode::invalid_argument,
                 module.name + " is one matrix, not several in one tensor", "--expert"};
  }
  if (expert >= module.experts) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}, but {} has {} {}, 0 to {}", expert, module.name, module.experts,
                             slices_name(module), module.experts - 1),
                 "--expert"};
  }
  if (!module.unreadable.empty()) {
    return Error{ErrorCode::unsupported, module.unreadable, module.name};
  }
  ExpertStats out;
  FEWBIT_TRY(out.matrix, canonicalize(checkpoint, module, expert));
  FEWBIT_TRY(out.weights, matrix_stats(out.matrix));
  if (out.matrix.scales.view.bytes.empty()) return out;
  FEWBIT_TRY(out.scales, tensor_stats(out.matrix.scales.view, std::nullopt));
  return out;
}

Json expert_json(const Checkpoint& checkpoint, const Module& module, std::int64_t expert,
                 const ExpertStats& stats) {
  Json out = module_json(checkpoint, module);
  out.set("selected_expert", expert);
  out.set("weights", stats_json(stats.weights));
  if (!stats.scales) return out;
  Json scales = stats_json(*stats.scales);
  scales.set("dtype", std::string(dtype_name(stats.matrix.scales.view.dtype)));
  scales.set("shape", list_json(stats.matrix.scales.view.shape));
  out.set("scales", scales);
  out.set("global_scale", static_cast<double>(stats.matrix.global_scale));
  return out;
}

}  // namespace

std::string module_shape_text(const Module& module) {
  if (module.k == 0) return fmt::format("[{}]", module.n);
  if (module.experts == 0) return fmt::format("[{}, {}]", module.n, module.k);
  return fmt::format("[{} x {}, {}]", module.experts, module.n, module.k);
}

Json module_json(const Checkpoint& checkpoint, const Module& module) {
  Json parts{Json::Array{}};
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = checkpoint.find(part.tensor);
    if (info == nullptr) continue;
    Json entry;
    entry.set("tensor", part.tensor);
    entry.set("dtype", stored_type_name(*info));
    entry.set("shape", list_json(shape_in_elements(*info)));
    entry.set("bytes", info->bytes);
    parts.push_back(entry);
  }
  Json out;
  out.set("name", module.name);
  out.set("role", role_name(module.role));
  out.set("layer", module.layer);
  out.set("expert", module.expert);
  out.set("experts", module.experts);
  out.set("n", module.n);
  out.set("k", module.k);
  out.set("producer", producer_name(module.scheme.producer));
  out.set("scheme", scheme_text(module.scheme));
  out.set("unreadable", module.unreadable);
  out.set("evidence", module.evidence);
  out.set("tensors", parts);
  return out;
}

void print_module(const Checkpoint& checkpoint, const Module& module) {
  Table table({Align::left, Align::left});
  table.add({"module", module.name});
  table.add({"role", place_text(module)});
  table.add({"scheme", module.unreadable.empty() ? scheme_text(module.scheme) : module.unreadable});
  table.add({"[n, k]", module_shape_text(module) + order_text(module)});
  table.add({"evidence", module.evidence});
  for (const Module::Part& part : module.parts) {
    const TensorInfo* info = checkpoint.find(part.tensor);
    if (info == nullptr) continue;
    table.add(
        {part.suffix, fmt::format("{} {}  {}", stored_type_name(*info),
                                  shape_text(shape_in_elements(*info)), bytes_text(info->bytes))});
  }
  print_out("{}", Lines{table.text(0)});
}

Result<int> show_expert(const Checkpoint& checkpoint, const Module& module, std::int64_t expert,
                        bool as_json) {
  FEWBIT_TRY(const ExpertStats stats, expert_stats(checkpoint, module, expert));
  if (as_json) {
    print_json(expert_json(checkpoint, module, expert, stats));
    return exit_fine;
  }
  print_module(checkpoint, module);
  print_out("\nweights of number {} of {}, [{}, {}], decoded\n{}", expert, module.experts,
            stats.matrix.n, stats.matrix.k, Lines{stats_text(stats.weights)});
  if (stats.scales) {
    const TensorView& scales = stats.matrix.scales.view;
    print_out("\nits scales, {} {}{}\n{}", std::string(dtype_name(scales.dtype)),
              shape_text(scales.shape),
              module.scheme.scale && module.scheme.scale->has_global
                  ? fmt::format(", each times a global {:g}", stats.matrix.global_scale)
                  : "",
              Lines{stats_text(*stats.scales)});
  } else if (module.scheme.ggml_type) {
    print_out("\nits scales stand inside the blocks\n");
  }
  return exit_fine;
}

}  // namespace fewbit::cli
