// SPDX-License-Identifier: Apache-2.0
#include "canonical/gguf_exact.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "canonical/gguf_matrix.hpp"

namespace fewbit {
namespace {

// Ids of the file format.
constexpr int q4_0 = 2;
constexpr int q8_0 = 8;
constexpr int tq2_0 = 35;
constexpr int mxfp4 = 39;
constexpr int nvfp4 = 40;
constexpr int q2_0 = 42;    // blocks of 64; those of 128 have the id that they got later
constexpr int pq2_0 = 142;  // blocks of 128

// How the codes of a block lie: as canonical rows have them; those of a group's first half in low
// and those of its second in high nibbles; runs of 32 elements in the bit pairs of 32 bytes.
enum class Order { rows, halves, quarters };

// One block: its elements, and the bytes of its scales in front of its codes or (quarters) behind.
struct Form {
  DType weight = DType::u4;
  DType scale = DType::f16;
  std::int64_t elements = 32;
  std::int64_t group = 32;
  std::size_t scale_bytes = 2;
  Order order = Order::halves;

  std::int32_t zero_point() const {
    if (weight == DType::u2) return 1;
    return weight == DType::u4 ? 8 : 0;
  }

  std::size_t code_bytes() const {
    return static_cast<std::size_t>(elements * dtype_bits(weight) / 8);
  }
};

std::optional<Form> form_of(const Scheme& scheme) {
  switch (scheme.ggml_type.value_or(-1)) {
    case q4_0:
      return Form{};
    case q8_0:
      return Form{.weight = DType::i8, .order = Order::rows};
    case tq2_0:
      return Form{.weight = DType::u2, .elements = 256, .group = 256, .order = Order::quarters};
    case q2_0:
      return Form{.weight = DType::u2, .elements = 64, .group = 64, .order = Order::rows};
    case pq2_0:
      return Form{.weight = DType::u2, .elements = 128, .group = 128, .order = Order::rows};
    case mxfp4:
      return Form{.weight = DType::f4_e2m1, .scale = DType::f8_e8m0, .scale_bytes = 1};
    case nvfp4:
      return Form{.weight = DType::f4_e2m1,
                  .scale = DType::f8_e4m3,
                  .elements = 64,
                  .group = 16,
                  .scale_bytes = 4};
    default:
      return std::nullopt;
  }
}

// ggml's table holds integers: code 8 is +0.
unsigned positive_zero(unsigned code) { return code == 8 ? 0 : code; }

// The low halves of `count` bytes are the first `count` codes, the high halves the others.
void spread_halves(std::span<const std::byte> from, DType weight, std::span<std::byte> to) {
  const std::size_t count = from.size();
  const auto code = [&](std::size_t i) {
    const auto byte = std::to_integer<unsigned>(from[i % count]);
    const unsigned half = i < count ? byte & 0xFU : byte >> 4U;
    return weight == DType::f4_e2m1 ? positive_zero(half) : half;
  };
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = static_cast<std::byte>(code(2 * i) | code(2 * i + 1) << 4U);
  }
}

// 128 codes: element i in bit pair i / 32 of byte i % 32.
void spread_quarters(std::span<const std::byte> from, std::span<std::byte> to) {
  for (std::size_t i = 0; i < 128; ++i) {
    const unsigned code = std::to_integer<unsigned>(from[i % 32]) >> (i / 32 * 2) & 3U;
    if (i % 4 == 0) to[i / 4] = std::byte{0};
    to[i / 4] |= static_cast<std::byte>(code << (i % 4 * 2));
  }
}

void move_codes(std::span<const std::byte> from, const Form& form, std::span<std::byte> to) {
  if (form.order == Order::rows) {
    std::ranges::copy(from, to.begin());
    return;
  }
  if (form.order == Order::quarters) {
    for (std::size_t at = 0; at < from.size(); at += 32)
      spread_quarters(from.subspan(at, 32), to.subspan(at, 32));
    return;
  }
  const auto group = static_cast<std::size_t>(form.group / 2);
  for (std::size_t at = 0; at < from.size(); at += group) {
    spread_halves(from.subspan(at, group), form.weight, to.subspan(at, group));
  }
}

// The byte 0x7f reads as zero, the top bit of others counts for nothing; 0xff is 480.
Result<void> move_scales(std::span<const std::byte> from, const Form& form,
                         std::span<std::byte> to) {
  std::ranges::copy(from, to.begin());
  if (form.scale != DType::f8_e4m3) return {};
  for (std::byte& scale : to) {
    if (scale == std::byte{0xFF}) {
      return Error{ErrorCode::unsupported, "an NVFP4 scale of 480, which e4m3 does not have", ""};
    }
    scale = scale == std::byte{0x7F} ? std::byte{0} : scale & std::byte{0x7F};
  }
  return {};
}

}  // namespace

std::optional<Scheme> gguf_exact_scheme(const Scheme& scheme) {
  const std::optional<Form> form = form_of(scheme);
  if (!form) return std::nullopt;
  Scheme exact;
  exact.producer = Producer::gguf;
  exact.weight = form->weight;
  exact.zero_point = form->zero_point();
  exact.scale = ScaleSpec{.dtype = form->scale,
                          .granularity = {.rows = 1, .cols = form->group},
                          .has_global = form->scale == DType::f8_e4m3};
  return exact;
}

Result<QuantizedTensor> gguf_exact(const QuantizedTensor& blocks) {
  const std::optional<Form> form = form_of(blocks.scheme);
  if (!form) return blocks;
  FEWBIT_TRY(gguf_rows(blocks));
  QuantizedTensor out;
  out.n = blocks.n;
  out.k = blocks.k;
  out.scheme = *gguf_exact_scheme(blocks.scheme);
  out.global_scale = blocks.global_scale;
  out.stored_global_scale = blocks.stored_global_scale;
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(form->weight, {out.n, out.k}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(form->scale, {out.n, out.k / form->group}));
  const std::size_t code_bytes = form->code_bytes();
  const std::size_t block_bytes = form->scale_bytes + code_bytes;
  const auto from = blocks.codes.view.bytes;
  for (std::size_t b = 0; b < from.size() / block_bytes; ++b) {
    const auto block = from.subspan(b * block_bytes, block_bytes);
    const bool behind = form->order == Order::quarters;
    FEWBIT_TRY(move_scales(block.subspan(behind ? code_bytes : 0, form->scale_bytes), *form,
                           scales.bytes.subspan(b * form->scale_bytes, form->scale_bytes)));
    move_codes(block.subspan(behind ? 0 : form->scale_bytes, code_bytes), *form,
               codes.bytes.subspan(b * code_bytes, code_bytes));
  }
  out.codes = std::move(codes.tensor);
  out.scales = std::move(scales.tensor);
  return out;
}

Result<ExpertWeights> gguf_exact(ExpertWeights expert) {
  if (expert.gate) {
    FEWBIT_TRY(expert.gate, gguf_exact(*expert.gate));
  }
  FEWBIT_TRY(expert.up, gguf_exact(expert.up));
  FEWBIT_TRY(expert.down, gguf_exact(expert.down));
  return expert;
}

}  // namespace fewbit
