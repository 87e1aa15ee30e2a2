// SPDX-License-Identifier: Apache-2.0
// MXFP4 as models are released in it: gpt-oss (blocks and scales of all experts) and DeepSeek-V4
// (I8 bytes with e8m0 scales). The config doesn't decide: such files say "fp8", and expert_dtype is
// not always true.
#include "scheme/fp4.hpp"

namespace fewbit {
namespace {

bool is_gpt_oss(const Draft& draft) { return draft.has("blocks") && draft.has("scales"); }

bool is_deepseek(const Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  const TensorInfo* scale = draft.tensor("scale");
  return weight != nullptr && scale != nullptr && scale->dtype == DType::f8_e8m0 &&
         (weight->dtype == DType::i8 || weight->dtype == DType::u8);
}

}  // namespace

void claim_mxfp4(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  // With an unknown method not even familiar names are sure.
  if (first != nullptr && first->producer == Producer::unknown) return;
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !(is_gpt_oss(draft) || is_deepseek(draft))) continue;
    claim_fp4(inventory, draft, Producer::mxfp4, std::nullopt);
  }
}

}  // namespace fewbit
