// SPDX-License-Identifier: Apache-2.0
// validate() with progress, and its parts, one file a subject.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheme/finding_groups.hpp"
#include "scheme/model_hints.hpp"

namespace fewbit {

// Modules done and in all; false: stop, what was found so far is returned.
using ValidationProgress = std::function<bool(std::uint64_t, std::uint64_t)>;
std::vector<Finding> validate(const Checkpoint& checkpoint, const Identified& identified,
                              Depth depth, const ValidationProgress& progress);

struct Validation {
  const Checkpoint& checkpoint;
  const Identified& identified;
  Depth depth;
  FindingGroups groups;
  bool auto_round = false;  // it wrote the codes, whatever their format is called

  // Of findings with a magnitude the worst is shown.
  void add(const Module& module, Level level, std::string rule, std::string where,
           std::string found, std::string expected, double magnitude = 0) {
    groups.add(module.role,
               {level, std::move(rule), std::move(where), std::move(found), std::move(expected)},
               magnitude);
  }
};

// No weight of a language model is near this: a larger one means that a scale is upside down, or
// not what its type says.
inline constexpr double implausible_weight = 4096;

// Presence, types and shapes of NVFP4 codes and scales.
void validate_nvfp4(Validation& validation, const Module& module);
// NaN and infinity among FP8 codes; reads all of them.
void validate_code_values(Validation& validation, const Module& module);
// Shape and values of the vector that activations are multiplied by.
void validate_pre_quant_scale(Validation& validation, const Module& module);
// Float scales of FP8 codes, where the config says that they are powers of two.
void validate_powers_of_two(Validation& validation);
// Scales of activations and of the key/value cache, which nothing uses.
void validate_activation_scales(Validation& validation, const Module& module);
// The second factor of NVFP4 codes of other producers.
void validate_fp4_factor(Validation& validation, const Module& module);
// The stored shape before packing.
void validate_weight_shape(Validation& validation, const Module& module);
// Group numbers and zero points of integer codes along k.
void validate_integer_rows(Validation& validation, const Module& module);
// Offsets of MLX's groups.
void validate_affine(Validation& validation, const Module& module);
// Scales inside the blocks of a GGUF tensor, and the factor beside it.
void validate_gguf(Validation& validation, const Module& module);
// The largest scales of all experts, compared with each other.
class ExpertScales {
 public:
  void add(const Module& module, int expert, double largest);
  void report(Validation& validation) const;

 private:
  struct Expert {
    int expert = 0;
    double largest = 0;
    const Module* module = nullptr;
  };
  std::map<std::pair<std::string, Role>, std::vector<Expert>> layers_;  // by path and role
};
// Values of all scales, whoever wrote them, and whether the weights that they make are plausible.
class LargestWeights;
void validate_scale_values(Validation& validation, const Module& module, ExpertScales& experts,
                           LargestWeights& largest);
// Quantized routers and embeddings, rounded biases of the choice of experts.
void validate_roles(Validation& validation);
// Activation scales that are no numbers, or that some experts lack.
void validate_input_scales(Validation& validation);
// Scales under names that nothing reads.
void validate_unread_scales(Validation& validation);
// Token-prediction layers that are stored in another way than the model.
void validate_drafts(Validation& validation);
// Matrices that belong together and are stored in different ways.
void validate_schemes(Validation& validation);
// Presence, types, shapes and values of the parts of GPTQ, AWQ and AutoRound.
void validate_integer(Validation& validation, const Module& module);
// Each layer holds experts 0 to E-1, of one shape.
void validate_experts(Validation& validation);
// Gate and up that have global scales of their own.
void validate_gate_up_globals(Validation& validation);
// Numbers of experts of the fused tensors of a layer, and rows of its router.
void validate_fused_counts(Validation& validation);
// Modules that one layer lacks, or has in another shape than all others of its kind; in all layers
// but those in `told`.
void validate_layer_parts(Validation& validation, const ModelHints& hints,
                          const std::set<std::string>& told);
// What a token-prediction layer lacks.
void validate_draft_parts(Validation& validation, const ModelHints& hints);
// What state-space models and other mixers of a layer lack; the layers that lack something
// ("layers.3").
std::set<std::string> validate_mixers(Validation& validation, const ModelHints& hints);
// Projections that all layers of a whole model lack, though they have their counterparts.
void validate_counterparts(Validation& validation, const ModelHints& hints);
// What the experts of a layer and a model as a whole can't be without.
void validate_whole_model(Validation& validation, const ModelHints& hints);
// Layers that are left out, and projections that some layers of a kind lack.
void validate_layers(Validation& validation);
// Types of plain weights and, in depth `weights`, NaN and infinity among them and among biases.
void validate_plain(Validation& validation, const Module& module);
// Weights and ends of files that are nothing but zeros; in depth `weights`.
void validate_zeros(Validation& validation);
// Integer weights of a whole model that are implausibly large.
class LargestWeights {
 public:
  void add(const Module& module, double largest);
  void report(Validation& validation) const;

 private:
  std::vector<std::pair<double, const Module*>> matrices_;
};
// Matrices that are stored in two places.
void validate_twice(Validation& validation);
// An adapter_config.json that can't be read, or describes no adapter.
void validate_adapter_config(Validation& validation);
// Shapes and types of biases beside matrices.
void validate_mlp_shapes(Validation& validation);
void validate_biases(Validation& validation);
// Missing, unexpected and mis-shaped tensors of a model that config.json describes in full.
void validate_model(Validation& validation);
// Attentions against the heads that config.json states.
void validate_attention_sizes(Validation& validation);
// Sizes of matrices against config.json.
void validate_config_sizes(Validation& validation);

}  // namespace fewbit
