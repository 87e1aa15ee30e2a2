// SPDX-License-Identifier: Apache-2.0
// Which storage a module has; everything else stands in the storage's own file.
#include <fmt/format.h>

#include "canonical/storage.hpp"
#include "scheme/affine_words.hpp"
#include "scheme/integer_layout.hpp"

namespace fewbit {
namespace {

// Which modules a storage holds, and its function. In order; the first one is taken.
struct Storage {
  bool (*holds)(const Scheme&);
  Result<QuantizedTensor> (*canonicalize)(const Checkpoint&, const Module&, std::int64_t);
};

constexpr Storage storages[] = {
    {[](const Scheme& scheme) { return scheme.packing == Packing::ggml; }, canonicalize_gguf},
    {[](const Scheme& scheme) { return !scheme.quantized(); }, canonicalize_plain},
    {[](const Scheme& scheme) { return scheme.producer == Producer::bitsandbytes; },
     canonicalize_bitsandbytes},
    {is_affine_words, canonicalize_affine_words},
    {[](const Scheme& scheme) {
       return scheme.weight == DType::i4 && scheme.packing == Packing::nibbles_k && scheme.scale &&
              scheme.scale->dtype == DType::f8_e8m0;
     },
     canonicalize_mx_int4},
    {[](const Scheme& scheme) {
       return scheme.weight == DType::i4 && scheme.packing == Packing::nibbles_k;
     },
     canonicalize_scaled},
    {[](const Scheme& scheme) { return scheme.packing == Packing::quarters_n; },
     canonicalize_ternary},
    {[](const Scheme& scheme) {
       return scheme.packing == Packing::nibbles_n || scheme.weight == DType::nf3 ||
              (scheme.producer == Producer::modelopt && scheme.scale &&
               scheme.scale->dtype == DType::f8_e8m0);
     },
     canonicalize_scaled},
    {[](const Scheme& scheme) {
       return scheme.producer == Producer::modelopt && scheme.weight == DType::f4_e2m1;
     },
     canonicalize_nvfp4},
    {[](const Scheme& scheme) { return scheme.weight == DType::f4_e2m1; }, canonicalize_fp4},
    {[](const Scheme& scheme) {
       const bool more = scheme.zero_points || scheme.act_order != ActOrder::none;
       return scheme.packing == Packing::words_row ||
              (scheme.packing == Packing::none && scheme.weight == DType::i8 && more);
     },
     canonicalize_integer_rows},
    {[](const Scheme& scheme) { return is_integer_words(scheme.packing); }, canonicalize_integer},
    {[](const Scheme& scheme) {
       return scheme.packing == Packing::none && scheme.scale && dtype_bits(scheme.weight) == 8;
     },
     canonicalize_scaled},
};

}  // namespace

Result<QuantizedTensor> canonicalize(const Checkpoint& checkpoint, const Module& module,
                                     std::int64_t fused_expert) {
  if (!module.unreadable.empty()) {
    return Error{ErrorCode::unsupported, module.unreadable, module.name};
  }
  const bool in_range =
      module.experts > 0 ? fused_expert >= 0 && fused_expert < module.experts : fused_expert == -1;
  if (!in_range) {
    return Error{ErrorCode::invalid_argument,
                 module.experts > 0
                     ? fmt::format("expert {} of a tensor with {}", fused_expert, module.experts)
                     : fmt::format("expert {} of a tensor that holds one matrix", fused_expert),
                 module.name};
  }
  for (const Storage& storage : storages) {
    if (storage.holds(module.scheme)) return storage.canonicalize(checkpoint, module, fused_expert);
  }
  return Error{ErrorCode::unsupported, scheme_text(module.scheme) + " is not readable yet",
               module.name};
}

}  // namespace fewbit
