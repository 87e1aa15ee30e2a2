// SPDX-License-Identifier: Apache-2.0
// compressed-tensors (llm-compressor), and what auto-round exports under its names.
#include <fmt/format.h>

#include <string>

#include "scheme/compressed_tensors_config.hpp"
#include "scheme/fp4.hpp"
#include "scheme/int8.hpp"
#include "scheme/nibble_types.hpp"
#include "scheme/packed_rows.hpp"
#include "scheme/word_forms.hpp"

namespace fewbit {
namespace {

std::optional<DType> activation_of(const CtArgs& args) {
  if (args.bits == 4) return args.floating ? DType::f4_e2m1 : DType::i4;
  if (args.bits == 8) return args.floating ? DType::f8_e4m3 : DType::i8;
  return std::nullopt;
}

class CtReader {
 public:
  CtReader(Inventory& inventory, std::optional<CtConfig> config)
      : inventory_(inventory), config_(std::move(config)), nibbles_(inventory.declared) {
    const Declaration* first = inventory.declared.first();
    if (first != nullptr && first->producer == Producer::auto_round) {
      producer_ = Producer::auto_round;
    }
  }

  void claim(Draft& draft) {
    const TensorInfo* packed = packed_codes(draft);
    if (is_sparse(draft)) {
      refuse_sparse(draft);
    } else if (packed != nullptr) {
      claim_packed(draft, *packed);
    } else if (config_ && is_int8(draft)) {
      if (!refuse_all(draft, DType::i8)) claim_int8(inventory_, draft, producer_, options(draft));
    } else if (config_ && !config_->obstacle().empty() && is_fp8(draft)) {
      refuse_all(draft, DType::f8_e4m3);
    }
  }

 private:
  static const TensorInfo* packed_codes(const Draft& draft) {
    const TensorInfo* packed = draft.tensor("weight_packed");
    return packed != nullptr ? packed : draft.tensor("packed");
  }
  static bool is_sparse(const Draft& draft) {
    return draft.has("compressed") || draft.has("weight.compressed") ||
           (packed_codes(draft) != nullptr && draft.has("meta"));
  }
  static bool is_int8(const Draft& draft) {
    const TensorInfo* weight = draft.tensor("weight");
    return weight != nullptr && weight->dtype == DType::i8 && draft.has("weight_scale") &&
           !draft.has("weight_scale_2");
  }
  static bool is_fp8(const Draft& draft) {
    const TensorInfo* weight = draft.tensor("weight");
    return weight != nullptr && weight->dtype == DType::f8_e4m3;
  }

  // MXFP6: 24 bytes a group of 32.
  static bool is_six_bits(const Draft& draft, const TensorInfo& packed) {
    const TensorInfo* scale = draft.tensor("weight_scale");
    if (scale == nullptr || scale->shape.size() < 2) return false;
    const bool bytes = packed.dtype == DType::u8 && scale->dtype == DType::u8;
    return bytes && packed.shape.size() == scale->shape.size() && packed.shape.back() % 24 == 0 &&
           scale->shape.back() == packed.shape.back() / 24;
  }

  void refuse(Draft& draft, std::string why, DType weight = DType::u4) const {
    Scheme scheme;
    scheme.producer = producer_;
    scheme.weight = weight;
    draft.refuse(scheme, std::move(why));
  }

  void refuse_sparse(Draft& draft) const {
    const TensorInfo* kept = draft.tensor("compressed");
    if (kept == nullptr) kept = draft.tensor("weight.compressed");
    const bool named = config_ && !config_->obstacle().empty();
    refuse(draft,
           named ? config_->obstacle() : "a sparsity format of compressed-tensors is not readable",
           kept != nullptr ? kept->dtype : DType::u4);
  }

  bool refuse_all(Draft& draft, DType weight) const {
    if (!config_ || config_->obstacle().empty()) return false;
    refuse(draft, config_->obstacle(), weight);
    return true;
  }

  IntegerOptions options(const Draft& draft) const {
    IntegerOptions out;
    const CtGroup* group = config_ ? config_->group_of(draft.module) : nullptr;
    // Of an ignored module that is quantized all the same, another group may tell.
    if (group == nullptr && config_ && config_->groups().size() == 1) {
      group = &config_->groups().front();
    }
    if (group == nullptr) return out;
    if (group->activations) out.activation = activation_of(*group->activations);
    if (!group->weights || group->weights->floating) return out;
    if (group->weights->bits_usable) out.bits = group->weights->bits;
    out.group_size = group->weights->group_size;
    out.act_order = group->weights->act_order;
    out.symmetric = group->weights->symmetric;
    return out;
  }

  void claim_packed(Draft& draft, const TensorInfo& packed) {
    const bool words = packed.dtype == DType::i32 || packed.dtype == DType::u32;
    if (refuse_all(draft, words ? DType::u4 : DType::f4_e2m1)) return;
    if (words) {
      claim_packed_rows(inventory_, draft, producer_, options(draft), shapes_);
      return;
    }
    if (is_six_bits(draft, packed)) {
      refuse(draft, "mxfp6-pack-quantized is not readable: codes of 6 bits, four in three bytes",
             DType::f6_e2m3);
      return;
    }
    claim_fp4(inventory_, draft, producer_, options(draft).activation);
    if (draft.module.unreadable.empty()) settle_nibbles(draft);
  }

  // Where the tensors leave open what the codes are.
  void settle_nibbles(Draft& draft) {
    Module& module = draft.module;
    const DType scale = module.scheme.scale->dtype;
    const NibbleTypes::Verdict verdict = nibbles_.of(module.name, declared_codes(module));
    if (scale == DType::f8_e5m3 && !verdict.e5m3) {
      module.unreadable =
          "bytes for groups of 16, which are e5m3 for AutoRound's nvfp4_v2 alone: " + verdict.says;
    }
    if (scale != DType::f8_e8m0) return;
    if (verdict.codes == NibbleCodes::untold) {
      module.unreadable =
          "4-bit codes with exponents for groups of 32 are e2m1 or, as mx_int4, integers: " +
          verdict.says;
    } else if (verdict.codes == NibbleCodes::quarters) {
      module.scheme.weight = DType::i4;
    }
  }

  // What compressed-tensors' own groups say.
  NibbleCodes declared_codes(const Module& module) const {
    const CtGroup* group = config_ ? config_->group_of(module) : nullptr;
    if (group == nullptr || !group->weights) {
      const bool named = config_ && config_->format().find("fp4") != std::string::npos;
      return named ? NibbleCodes::floats : NibbleCodes::untold;
    }
    return group->weights->floating ? NibbleCodes::floats : NibbleCodes::quarters;
  }

  Inventory& inventory_;
  std::optional<CtConfig> config_;
  Producer producer_ = Producer::compressed_tensors;
  NibbleTypes nibbles_;
  WeightShapes shapes_;
};

}  // namespace

void claim_compressed_tensors(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  // With an unknown method not even familiar names are sure.
  if (first != nullptr && first->producer == Producer::unknown) return;
  const std::optional<CtConfig> config = CtConfig::read(inventory.declared, inventory.drafts);
  CtReader reader(inventory, config);
  for (Draft& draft : inventory.drafts) {
    if (!draft.claimed) reader.claim(draft);
  }
  const bool any = config.has_value();
  check_word_forms(inventory, any ? config->version() : "", any ? config->where() : "");
}

}  // namespace fewbit
