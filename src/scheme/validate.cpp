// SPDX-License-Identifier: Apache-2.0
// Whether the parts of a checkpoint fit together.
#include <algorithm>

#include "scheme/affine_words.hpp"
#include "scheme/integer_layout.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/read_ahead.hpp"
#include "scheme/reader.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

void validate_leftovers(Validation& validation, const Module& module) {
  const bool weight = has_weight(module);
  const auto scale = std::find_if(module.parts.begin(), module.parts.end(), [](const auto& part) {
    return is_quantization_suffix(part.suffix);
  });
  if (weight || scale == module.parts.end() || !module.scheme.quantized()) return;
  // Of methods that have their codes under other names; reported for what it is.
  if (!module.unreadable.empty() && module.unreadable != leftover_scale) return;
  validation.add(module, Level::error, "scale-without-weight", scale->tensor, module.evidence,
                 "a weight beside it");
}

void validate_module(Validation& validation, const Module& module) {
  validate_leftovers(validation, module);
  if (!module.unreadable.empty()) return;
  validate_plain(validation, module);
  validate_activation_scales(validation, module);
  if (validation.depth == Depth::weights) validate_code_values(validation, module);
  if (module.scheme.ggml_type) validate_gguf(validation, module);
  if (module.scheme.pre_quant_scale) validate_pre_quant_scale(validation, module);
  const bool four_bit = module.scheme.weight == DType::f4_e2m1 && module.scheme.scale;
  if (four_bit && module.scheme.producer == Producer::modelopt && !module.transposed &&
      module.scheme.scale->has_global) {
    validate_nvfp4(validation, module);
  } else if (four_bit) {
    validate_fp4_factor(validation, module);
  }
  if (module.scheme.quantized()) validate_weight_shape(validation, module);
  const bool affine = is_affine_words(module.scheme);
  if ((module.scheme.packing == Packing::words_row && !affine) ||
      module.scheme.weight == DType::i8) {
    validate_integer_rows(validation, module);
  }
  if (affine) validate_affine(validation, module);
  if (is_integer_words(module.scheme.packing)) validate_integer(validation, module);
}

}  // namespace

std::vector<Finding> validate(const Checkpoint& checkpoint, const Identified& identified,
                              Depth depth) {
  return validate(checkpoint, identified, depth, [](std::uint64_t, std::uint64_t) { return true; });
}

std::vector<Finding> validate(const Checkpoint& checkpoint, const Identified& identified,
                              Depth depth, const ValidationProgress& progress) {
  Validation validation{checkpoint, identified, depth, {}};
  if (const auto declared = read_declared(checkpoint)) {
    validation.auto_round =
        std::any_of(declared->all.begin(), declared->all.end(), written_by_auto_round);
  }
  ExpertScales experts;
  LargestWeights largest;
  ReadAhead ahead(checkpoint, identified.modules, depth);
  std::uint64_t done = 0;
  for (const Module& module : identified.modules) {
    ahead.before(done);
    if (!progress(done++, identified.modules.size())) break;
    validate_module(validation, module);
    if (depth != Depth::headers) {
      validate_scale_values(validation, module, experts, largest);
    }
  }
  experts.report(validation);
  largest.report(validation);
  validate_zeros(validation);
  validate_powers_of_two(validation);
  validate_roles(validation);
  validate_schemes(validation);
  validate_input_scales(validation);
  validate_unread_scales(validation);
  validate_drafts(validation);
  validate_experts(validation);
  validate_gate_up_globals(validation);
  if (!is_part_of_model(checkpoint)) validate_layers(validation);
  validate_twice(validation);
  validate_mlp_shapes(validation);
  validate_biases(validation);
  validate_adapter_config(validation);
  validate_fused_counts(validation);
  validate_config_sizes(validation);
  validate_attention_sizes(validation);
  validate_model(validation);
  std::vector<Finding> findings = std::move(validation.groups).take();
  soften_findings_of_a_shard(checkpoint, findings);
  return findings;
}

}  // namespace fewbit
