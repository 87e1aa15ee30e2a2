// SPDX-License-Identifier: Apache-2.0
// What a producer's reader is: a function that claims the modules it recognises.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scheme/declared.hpp"
#include "scheme/model_json.hpp"

namespace fewbit {

// Module::unreadable of scales that belong to no weight; validate() reports them.
inline constexpr std::string_view leftover_scale = "a scale without a weight";

// A module before and after a reader claimed it. Name, role, layer, expert and parts are set from
// the start; a reader sets n, k, experts, scheme, unreadable and evidence.
struct Draft {
  Module module;
  std::vector<const TensorInfo*> tensors;  // parallel to module.parts
  bool claimed = false;

  // nullptr when the module has no such part.
  const TensorInfo* tensor(std::string_view suffix) const;
  bool has(std::string_view suffix) const { return tensor(suffix) != nullptr; }
  // Fills evidence from the parts: "weight u8 [128, 64] + weight_scale f8_e4m3 [128, 8]".
  void claim(Scheme scheme);
  // Claimed, but not readable, and why.
  void refuse(Scheme scheme, std::string why);
};

// Everything a reader may look at.
struct Inventory {
  const Checkpoint* checkpoint = nullptr;  // for the few tensors whose values a reader needs
  Declared declared;
  std::string model_type;                   // of config.json; empty when unknown
  std::optional<std::int64_t> hidden_size;  // of config.json
  std::optional<std::int64_t> num_layers;
  bool gguf = false;          // a GGUF file, with its own names and rules
  std::vector<Draft> drafts;  // in order of name
  std::vector<Finding> findings;

  // By the module's name; nullptr when there is none.
  const Draft* find(std::string_view name) const;
  Draft* find(std::string_view name);
};

// Zero points that compressed-tensors left beside symmetric weights: nothing but zeros.
bool is_left_over_zero(const Inventory& inventory, const Draft& draft, std::string_view suffix);

// Group numbers of columns that were never set, -1 everywhere: groups are runs of columns.
bool is_unset_group_index(const Inventory& inventory, const TensorInfo& g_idx);

struct Reader {
  Producer producer;
  void (*claim)(Inventory&);
  // After all readers: adds findings where this producer's config and the tensors disagree.
  void (*check)(Inventory&) = nullptr;
};

// In order; a module belongs to the first reader that claims it, and to `unknown` when none does.
std::span<const Reader> readers();

// Findings of the lists of unquantized modules in the config, whoever wrote it: entries that match
// nothing or too much, lists that differ, fused modules of which only a part is listed.
void check_module_rules(Inventory& inventory);
// Activations that the config says are static, without scales beside the weights.
void check_static_activations(Inventory& inventory);
// Numbers and words of quantization blocks that can mean nothing, unless the producer's own check
// names them.
void check_config_values(Inventory& inventory);
// AutoRound's keys beside compressed-tensors' groups, where they contradict each other.
void check_both_dialects(Inventory& inventory);
// Keys that speak of quantization beside weights that are all plain, in a config that declares
// none.
void check_config_hints(Inventory& inventory, const ModelJson& config);
// JSON files beside the weights that speak of quantization and that nothing reads.
void check_unread_files(Inventory& inventory);
// Config files that disagree about the producer; weights that are stored rotated.
void check_declared(Inventory& inventory);

// Of token-prediction layers, behind the last one or beside the layers: configs rarely list them.
bool is_prediction(const Inventory& inventory, const Module& module);

// After all readers: tensors below a quantized matrix that none of them uses make it unreadable.
void refuse_companions(Inventory& inventory);

// A part beside the codes that is neither one of `applied` nor of the activations; empty: none.
std::string_view unapplied_part(const Draft& draft, std::span<const std::string_view> applied);
// Why codes of that kind with such a part can't be read; empty when there is none.
std::string unapplied_text(const Draft& draft, std::string_view kind,
                           std::span<const std::string_view> applied);

// Masks of attention, stored as bytes under names such as "self_attn.bias" and "attn.masked_bias".
void claim_masks(Inventory& inventory);

// One function a file.
void claim_gguf(Inventory& inventory);
void claim_affine_words(Inventory& inventory);  // MLX's layout, of AutoRound
void claim_mlx(Inventory& inventory);
void check_mlx(Inventory& inventory);
void claim_modelopt(Inventory& inventory);
void check_modelopt(Inventory& inventory);
void claim_integer_words(Inventory& inventory);  // GPTQ, AWQ, AutoRound
void check_integer_words(Inventory& inventory);
void claim_w4afp8(Inventory& inventory);  // experts of FP8 models in 4 bits
void claim_fp8(Inventory& inventory);
void check_fp8(Inventory& inventory);
void claim_nf3(Inventory& inventory);
void check_nf3(Inventory& inventory);
void claim_ternary(Inventory& inventory);
void claim_bitsandbytes(Inventory& inventory);
void check_bitsandbytes(Inventory& inventory);
void claim_quark(Inventory& inventory);
void check_quark(Inventory& inventory);
void claim_mxfp4(Inventory& inventory);
void claim_compressed_tensors(Inventory& inventory);
void check_compressed_tensors(Inventory& inventory);
void claim_named_tensors(Inventory& inventory);    // by names that no other producer has
void claim_other_producers(Inventory& inventory);  // named, not readable
void claim_unquantized(Inventory& inventory);

}  // namespace fewbit
