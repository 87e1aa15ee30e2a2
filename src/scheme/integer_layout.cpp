// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/checked.hpp"

namespace fewbit {
namespace {

using Size = std::int64_t;
constexpr std::array<int, 4> known_bits = {2, 3, 4, 8};
constexpr Size codes_a_word = 8;  // of AWQ: 4 bits each
constexpr Size largest_size = Size{1} << 40;

Size words_for(Size codes, int bits) { return ceil_div(codes * bits, Size{32}); }

Size groups_of(Size k, Size group_size) { return group_size <= 0 ? 1 : ceil_div(k, group_size); }

// Words of zero points a row of AWQ GEMV: groups in words of 8, in multiples that its kernels read
// at once.
Size gemv_words(Size k, Size group_size) {
  const Size words = ceil_div(groups_of(k, group_size), codes_a_word);
  const Size multiple = group_size == 32 ? 4 : group_size == 64 ? 2 : 1;
  return round_up(words, multiple);
}

bool is_shape(const TensorInfo* info, const Shape& shape) {
  return info == nullptr || info->shape == shape;
}

bool is_matrix(const TensorInfo* info) {
  return info != nullptr && info->shape.size() == 2 && info->shape[0] > 0 && info->shape[1] > 0 &&
         info->shape[0] < largest_size && info->shape[1] < largest_size;
}

// Group sizes that cut k columns into `groups`: the stated one alone when it does, else the even
// division and the powers of two.
std::vector<Size> group_sizes(Size k, Size groups, std::optional<Size> stated) {
  if (groups < 1 || groups > k) return {};
  if (groups == 1) return {0};
  if (stated && *stated > 0 && groups_of(k, *stated) == groups) return {*stated};
  std::vector<Size> sizes;
  if (k % groups == 0) sizes.push_back(k / groups);
  for (Size size = 16; size <= 1024; size *= 2) {
    if (groups_of(k, size) == groups &&
        std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

struct Parts {
  const TensorInfo* qweight;
  const TensorInfo* scales;
  const TensorInfo* qzeros;
  const TensorInfo* g_idx;

  explicit Parts(const Draft& draft)
      : qweight(draft.tensor("qweight")),
        scales(draft.tensor("scales")),
        qzeros(draft.tensor("qzeros")),
        g_idx(draft.tensor("g_idx")) {}
};

// Codes, scales and zero points; g_idx has a say in add_gptq.
bool fits(const Parts& parts, const IntegerFit& fit) {
  const auto shapes = integer_shapes(fit);
  if (!shapes || !is_shape(parts.qweight, shapes->qweight)) return false;
  // Symmetric GPTQ may keep an empty tensor of zero points.
  const bool empty_zeros = fit.packing == Packing::words_k && parts.qzeros != nullptr &&
                           parts.qzeros->shape == Shape{shapes->qzeros[0], 0};
  return is_shape(parts.scales, shapes->scales) &&
         (empty_zeros || is_shape(parts.qzeros, shapes->qzeros));
}

// Columns of a GPTQ matrix: what the words hold. Where 3 bits do not fill them, only g_idx can
// tell.
std::optional<Size> columns_of_words(const Parts& parts, int bits) {
  const Size stream = parts.qweight->shape[0] * 32;
  if (stream % bits == 0) return stream / bits;
  if (parts.g_idx == nullptr || parts.g_idx->shape.size() != 1) return std::nullopt;
  return parts.g_idx->shape[0];
}

// Leaves the wanted ones where there are any.
template <class Wanted>
bool narrow(std::vector<IntegerFit>& fits, const Wanted& wanted) {
  if (std::none_of(fits.begin(), fits.end(), wanted)) return false;
  std::erase_if(fits, [&](const IntegerFit& fit) { return !wanted(fit); });
  return true;
}

// Whether g_idx has the length that the words hold in the config's width.
bool is_stated_index(const Parts& parts, const IntegerHints& hints) {
  const Size stream = parts.qweight->shape[0] * 32;
  return hints.bits && *hints.bits > 0 && parts.g_idx->shape == Shape{stream / *hints.bits};
}

// g_idx chooses between widths that the other parts leave open, but never against the width of the
// config when they agree with it: then its own length is the fault.
void narrow_widths(const Parts& parts, const IntegerHints& hints, std::vector<IntegerFit>& found) {
  const Size groups = parts.scales->shape[0];
  const auto stated = [&](const IntegerFit& fit) { return fit.bits == hints.bits; };
  narrow(found,
         [&](const IntegerFit& fit) { return stated(fit) || fit.k * fit.bits % Size{32} == 0; });
  const bool agreed = narrow(found, [&](const IntegerFit& fit) {
    return stated(fit) && (!hints.group_size || groups_of(fit.k, *hints.group_size) == groups);
  });
  if (!agreed && parts.g_idx != nullptr) {
    const auto indexed = [&](const IntegerFit& fit) { return parts.g_idx->shape == Shape{fit.k}; };
    // The config, the codes and g_idx against the rest: not another width either.
    if (!narrow(found, indexed) && is_stated_index(parts, hints)) found.clear();
  }
  narrow(found, stated);
}

void add_gptq(const Parts& parts, const IntegerHints& hints, std::vector<IntegerFit>& out) {
  std::vector<IntegerFit> found;
  for (const int bits : known_bits) {
    const auto k = columns_of_words(parts, bits);
    if (!k || *k < 1 || *k >= largest_size) continue;
    for (const Size size : group_sizes(*k, parts.scales->shape[0], hints.group_size)) {
      const IntegerFit fit = {Packing::words_k, bits, parts.qweight->shape[1], *k, size};
      if (fits(parts, fit)) found.push_back(fit);
    }
  }
  narrow_widths(parts, hints, found);
  out.insert(out.end(), found.begin(), found.end());
}

void add_gemm(const Parts& parts, const IntegerHints& hints, std::vector<IntegerFit>& out) {
  const Size k = parts.qweight->shape[0];
  const Size n = parts.qweight->shape[1] * codes_a_word;
  if (parts.g_idx != nullptr) return;
  for (const Size size : group_sizes(k, parts.scales->shape[0], hints.group_size)) {
    const IntegerFit fit = {Packing::words_n, 4, n, k, size};
    if (fits(parts, fit)) out.push_back(fit);
  }
}

// The scales are padded, so the groups can't be counted: every size that its kernels know.
std::vector<Size> gemv_group_sizes(const IntegerHints& hints) {
  if (hints.group_size) return {*hints.group_size};
  return {128, 64, 32};
}

void add_gemv(const Parts& parts, const IntegerHints& hints, std::vector<IntegerFit>& out) {
  if (parts.g_idx != nullptr || parts.qzeros == nullptr) return;
  const bool fast = parts.qweight->dtype == DType::i16;
  IntegerFit fit;
  fit.packing = fast ? Packing::shorts_gemv : Packing::words_gemv;
  fit.n = parts.qweight->shape[0] * (fast ? 4 : 1);
  fit.k = parts.qweight->shape[1] * (fast ? 1 : codes_a_word);
  if (fast && fit.k % 64 != 0) return;
  for (const Size size : gemv_group_sizes(hints)) {
    fit.group_size = size;
    if (fits(parts, fit)) out.push_back(fit);
  }
}

}  // namespace

std::optional<IntegerShapes> integer_shapes(const IntegerFit& fit) {
  if (fit.n < 1 || fit.k < 1 || fit.n >= largest_size || fit.k >= largest_size) return {};
  const Size groups = groups_of(fit.k, fit.group_size);
  IntegerShapes out;
  out.g_idx = {fit.k};
  switch (fit.packing) {
    case Packing::words_n:
      out.qweight = {fit.k, ceil_div(fit.n, codes_a_word)};
      out.scales = {groups, fit.n};
      out.qzeros = {groups, ceil_div(fit.n, codes_a_word)};
      break;
    case Packing::words_gemv: {
      const Size words = gemv_words(fit.k, fit.group_size);
      out.qweight = {fit.n, ceil_div(fit.k, codes_a_word)};
      out.scales = {fit.n, words * codes_a_word};
      out.qzeros = {fit.n, words};
      break;
    }
    case Packing::shorts_gemv: {
      const Size rows = gemv_words(fit.k, fit.group_size) * codes_a_word;
      out.qweight_dtype = DType::i16;
      out.qzeros_dtype = DType::f16;
      out.qweight = {ceil_div(fit.n, Size{4}), fit.k};
      out.scales = {rows, fit.n};
      out.qzeros = {rows, fit.n};
      break;
    }
    default:
      out.qweight = {words_for(fit.k, fit.bits), fit.n};
      out.scales = {groups, fit.n};
      out.qzeros = {groups, words_for(fit.n, fit.bits)};
  }
  return out;
}

IntegerFit integer_fit_of(const Scheme& scheme, std::int64_t n, std::int64_t k) {
  const Packing packing =
      scheme.packing == Packing::words_k_minus ? Packing::words_k : scheme.packing;
  return {packing, dtype_bits(scheme.weight), n, k,
          scheme.scale ? scheme.scale->granularity.cols : 0};
}

std::vector<IntegerFit> integer_fits(const Draft& draft, const IntegerHints& hints) {
  const Parts parts(draft);
  std::vector<IntegerFit> out;
  if (!is_matrix(parts.qweight) || !is_matrix(parts.scales)) return out;
  if (parts.qweight->dtype == DType::i32) {
    add_gptq(parts, hints, out);
    add_gemm(parts, hints, out);
    add_gemv(parts, hints, out);
  } else if (parts.qweight->dtype == DType::i16) {
    add_gemv(parts, hints, out);
  }
  return out;
}

IntegerFit nearest_integer_fit(const Draft& draft, Packing packing, const IntegerHints& hints) {
  const Parts parts(draft);
  IntegerFit fit;
  fit.packing = packing;
  fit.group_size = hints.group_size.value_or(128);
  if (!is_matrix(parts.qweight)) return fit;
  const Size first = parts.qweight->shape[0];
  const Size second = parts.qweight->shape[1];
  switch (packing) {
    case Packing::words_n:
      fit.k = first;
      fit.n = second * codes_a_word;
      return fit;
    case Packing::words_gemv:
      fit.n = first;
      fit.k = second * codes_a_word;
      return fit;
    case Packing::shorts_gemv:
      fit.n = first * 4;
      fit.k = second;
      return fit;
    default:
      break;
  }
  const Size stated = hints.bits.value_or(4);
  const bool known = std::find(known_bits.begin(), known_bits.end(), stated) != known_bits.end();
  fit.bits = known ? static_cast<int>(stated) : 4;
  fit.n = second;
  fit.k = first * 32 / fit.bits;
  return fit;
}

std::string integer_fit_text(const IntegerFit& fit) {
  const char* layout = fit.packing == Packing::words_n       ? "AWQ GEMM"
                       : fit.packing == Packing::words_gemv  ? "AWQ GEMV"
                       : fit.packing == Packing::shorts_gemv ? "AWQ GEMV-fast"
                                                             : "GPTQ";
  const std::string groups = fit.group_size == 0 ? std::string("one group a row")
                                                 : fmt::format("groups of {}", fit.group_size);
  return fmt::format("{} {} bit [{}, {}], {}", layout, fit.bits, fit.n, fit.k, groups);
}

}  // namespace fewbit
