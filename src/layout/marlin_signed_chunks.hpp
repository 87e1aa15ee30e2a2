// SPDX-License-Identifier: Apache-2.0
// 4-bit words with zero points -> what Marlin's FP8 kernels make of code - zero (marlin_codes.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "layout/column_words.hpp"
#include "layout/gptq_words.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/move_in_chunks.hpp"
#include "layout/pack.hpp"
#include "layout/pack_fast_words.hpp"

namespace fewbit {

// Words of codes and of their zero points -> words of signs and magnitudes, some rows at a time.
template <Layout Words, Layout ZeroWords>
class SignedChunks {
 public:
  SignedChunks(const MarlinFp8Job& job, const PaddedMatrix& matrix,
               std::span<const std::byte> words)
      : job_(job),
        matrix_(matrix),
        words_(words),
        row_words_(Words::bytes({.n = matrix.from.n, .k = row_k}) / 4),
        zeros_(static_cast<std::size_t>(row_words_)) {}

  std::int64_t move(std::span<std::byte> tiles) {
    move_in_chunks<Words, MarlinAct8Of4Bit>(
        matrix_,
        [this](std::int64_t k, std::int64_t count, std::byte* chunk) {
          for (std::int64_t i = 0; i < count; i += row_k) {
            sign_row(k + i, reinterpret_cast<std::uint32_t*>(chunk) + i / row_k * row_words_);
          }
        },
        tiles);
    return lost_;
  }

 private:
  static constexpr bool by_k = std::is_same_v<Words, GptqWords<4>>;
  static constexpr std::int64_t row_k = by_k ? 8 : 1;  // of one row of words

  struct Groups {
    std::int64_t first = -1;
    std::int64_t last = -1;
    bool operator==(const Groups&) const = default;
  };

  std::int64_t group_of(std::int64_t k) const { return k / (matrix_.from.k / job_.zeros.groups); }

  // Words of consecutive k hold a column's zero point for each of them, others those of the
  // checkpoint in their own order.
  void read_zeros(std::int64_t k) {
    const Dims dims{.n = matrix_.from.n, .k = job_.zeros.groups};
    if constexpr (by_k) {
      if (group_of(k) == group_of(k + row_k - 1)) return spread_zeros(group_of(k));
      for (std::int64_t n = 0; n < dims.n; ++n) {
        const auto zero_at = [&](std::int64_t at) {
          const Place place = ZeroWords::place(dims, n, group_of(at));
          return static_cast<std::uint32_t>(read_bits<4>(job_.zeros.words, place));
        };
        std::uint32_t word = 0;
        for (int i = 0; i < row_k; ++i) word |= zero_at(k + i) << (4 * i);
        zeros_[static_cast<std::size_t>(n)] = word;
      }
    } else {
      const Place place = ZeroWords::place(dims, 0, group_of(k));
      std::memcpy(zeros_.data(), job_.zeros.words.data() + place.byte, zeros_.size() * 4);
    }
  }

  // The zero points of one group, each in all codes of its column's word.
  void spread_zeros(std::int64_t group) {
    static_assert(!by_k || std::is_same_v<ZeroWords, ColumnWords<4>>);
    const Dims dims{.n = matrix_.from.n, .k = job_.zeros.groups};
    const std::byte* from = job_.zeros.words.data() + ZeroWords::place(dims, 0, group).byte;
    for (std::int64_t n = 0; n < dims.n; n += 8, from += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, from, sizeof word);
      for (int i = 0; i < 8; ++i) {
        zeros_[static_cast<std::size_t>(n + i)] = (word >> (4 * i) & 15U) * 0x11111111U;
      }
    }
  }

  void sign_row(std::int64_t k, std::uint32_t* out) {
    const Groups groups{.first = group_of(k), .last = group_of(k + row_k - 1)};
    if (groups != groups_) read_zeros(k);
    groups_ = groups;
    lost_ += sign_({.source = words_.data() + k / row_k * row_words_ * 4,
                    .out = out,
                    .words = row_words_,
                    .zeros = zeros_.data(),
                    .as_vllm = job_.rules == MarlinRules::as_vllm});
  }

  const MarlinFp8Job& job_;
  const PaddedMatrix& matrix_;
  std::span<const std::byte> words_;
  std::int64_t row_words_;
  std::vector<std::uint32_t> zeros_;
  Groups groups_;  // of zeros_
  std::int64_t lost_ = 0;
  SignWordsFn* sign_ = sign_words(packing_isa());
};

}  // namespace fewbit
