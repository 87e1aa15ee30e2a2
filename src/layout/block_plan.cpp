// SPDX-License-Identifier: Apache-2.0
#include "layout/block_plan.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace fewbit {
namespace {

constexpr int smallest_piece_log2 = 5;  // 4 bytes
constexpr std::size_t none = ~std::size_t{0};

int log2_of(std::int64_t power) { return std::countr_zero(static_cast<std::uint64_t>(power)); }

// Of bit i of an index: places[1 << i]. None where the others are not the sums of these.
std::optional<std::vector<std::int64_t>> bit_places(const std::vector<std::int64_t>& places) {
  if (!std::has_single_bit(places.size())) return std::nullopt;
  std::vector<std::int64_t> of_bit;
  for (std::size_t i = 1; i < places.size(); i *= 2) of_bit.push_back(places[i]);
  for (std::size_t i = 0; i < places.size(); ++i) {
    std::int64_t sum = 0;
    for (std::size_t bit = 0; bit < of_bit.size(); ++bit) {
      if ((i >> bit & 1U) != 0) sum += of_bit[bit];
    }
    if (sum != places[i]) return std::nullopt;
  }
  return of_bit;
}

// Of the bits of n, then of k.
std::optional<std::vector<std::int64_t>> index_places(const BlockPlaces& places) {
  auto all = bit_places(places.n);
  const auto k = bit_places(places.k);
  if (!all || !k) return std::nullopt;
  all->insert(all->end(), k->begin(), k->end());
  return all;
}

// Index bits that address neighbours: the first one the next element, the second one the next two.
std::vector<std::size_t> line_of(const std::vector<std::int64_t>& places, int element_bits) {
  std::vector<std::size_t> line;
  std::int64_t next = element_bits;
  for (;;) {
    const auto found = std::ranges::find(places, next);
    if (found == places.end()) return line;
    line.push_back(static_cast<std::size_t>(found - places.begin()));
    next *= 2;
  }
}

// Which index bit each address bit of the buffer is; positions below `first` are inside an element.
class Positions {
 public:
  Positions(int first, std::size_t count) : first_(first), bits_(count, none) {}

  int end() const { return first_ + static_cast<int>(bits_.size()); }
  std::size_t& operator[](int position) {
    return bits_[static_cast<std::size_t>(position - first_)];
  }
  std::size_t operator[](int position) const {
    return bits_[static_cast<std::size_t>(position - first_)];
  }
  int find(std::size_t bit) const {
    return first_ + static_cast<int>(std::ranges::find(bits_, bit) - bits_.begin());
  }
  bool holds(std::size_t bit) const { return std::ranges::find(bits_, bit) != bits_.end(); }

 private:
  int first_;
  std::vector<std::size_t> bits_;
};

// Lines as the source has them; bits above a line go where the result needs them, when that is in a
// register, the others follow as they are.
Positions place_lines(const std::vector<std::size_t>& line, const Positions& need, int need_end,
                      int first) {
  Positions at(first, static_cast<std::size_t>(need.end() - first));
  int position = first;
  for (const std::size_t bit : line) at[position++] = bit;
  for (int p = position; p < need_end; ++p) {
    if (!at.holds(need[p])) at[p] = need[p];
  }
  for (std::size_t bit = 0; bit < static_cast<std::size_t>(need.end() - first); ++bit) {
    if (!at.holds(bit)) at[at.find(none)] = bit;
  }
  return at;
}

constexpr int byte_log2 = 3;

// Positions of a register, and which of them the result needs in order.
struct Inside {
  int first;
  int need_end;
  int end;
};

class Exchanges {
 public:
  Exchanges(Positions& at, const Positions& need, Inside inside)
      : at_(at), need_(need), inside_(inside) {}

  // The bits of positions first to end come to theirs.
  void in_order(int first, int end) {
    for (;;) {
      int waiting = -1;
      bool moved = false;
      for (int p = first; p < end && !moved; ++p) {
        if (at_[p] == need_[p]) continue;
        const int from = at_.find(need_[p]);
        moved = from >= inside_.end;
        if (moved) step(from, p);
        if (!moved) waiting = from;
      }
      if (moved) continue;
      if (waiting < 0) return;
      step(at_.end() - 1, waiting);  // out of the register first
    }
  }
  // They come into the register, to any position from `first` on.
  void in_any_order(int first, int end) {
    int free = first;
    for (int p = first; p < end; ++p) {
      const int from = at_.find(need_[p]);
      if (from < inside_.end) continue;
      while (is_needed(at_[free], first, end)) ++free;
      step(from, free);
    }
  }
  std::vector<BitExchange> take() { return std::move(steps_); }

 private:
  void step(int high, int low) {
    std::swap(at_[high], at_[low]);
    steps_.push_back({.high = high, .low = low});
  }
  bool is_needed(std::size_t bit, int first, int end) const {
    for (int p = first; p < end; ++p) {
      if (need_[p] == bit) return true;
    }
    return false;
  }

  Positions& at_;
  const Positions& need_;
  Inside inside_;
  std::vector<BitExchange> steps_;
};

// Brings the bytes of a register into order, and their bits with them: byte i of it is byte
// shuffle[i]. Empty where they are.
std::vector<std::uint8_t> shuffle_bytes(Positions& at, const Positions& need, Inside inside) {
  const int first = std::max(inside.first, byte_log2);
  std::vector<int> from;  // of each position
  std::vector<std::size_t> bits;
  for (int p = first; p < inside.end; ++p) {
    from.push_back(p);
    bits.push_back(at[p]);
  }
  // The needed ones first; the others fill the rest in their order.
  const auto position = [&](int p) -> int& { return from[static_cast<std::size_t>(p - first)]; };
  for (int p = first; p < inside.need_end; ++p) {
    const int now = at.find(need[p]);
    const auto held = std::ranges::find(from, now) - from.begin();
    std::swap(position(p), from[static_cast<std::size_t>(held)]);
  }
  for (int p = first; p < inside.end; ++p) {
    at[p] = bits[static_cast<std::size_t>(position(p) - first)];
  }
  if (std::ranges::is_sorted(from)) return {};
  std::vector<std::uint8_t> shuffle(std::size_t{1} << (inside.end - byte_log2));
  const auto kept = (1U << (first - byte_log2)) - 1U;  // bytes of an element
  for (std::size_t i = 0; i < shuffle.size(); ++i) {
    auto source = static_cast<unsigned>(i) & kept;
    for (int p = first; p < inside.end; ++p) {
      if ((i >> (p - byte_log2) & 1U) != 0) source |= 1U << (position(p) - byte_log2);
    }
    shuffle[i] = static_cast<std::uint8_t>(source);
  }
  return shuffle;
}

// The tables of exchanges of whole bytes. The last one also shuffles.
std::vector<std::uint8_t> pair_tables(const std::vector<BitExchange>& exchanges,
                                      std::vector<std::uint8_t>& shuffle, int register_log2) {
  const std::size_t bytes = std::size_t{1} << (register_log2 - byte_log2);
  std::vector<std::uint8_t> tables(exchanges.size() * 2 * bytes);
  for (std::size_t e = 0; e < exchanges.size(); ++e) {
    if (exchanges[e].low < byte_log2) continue;
    const std::size_t bit = std::size_t{1} << (exchanges[e].low - byte_log2);
    const bool shuffled = e + 1 == exchanges.size() && !shuffle.empty();
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t at = shuffled ? shuffle[i] : i;
      const bool moved = (at & bit) != 0;
      std::uint8_t* const table = tables.data() + e * 2 * bytes;
      table[i] = static_cast<std::uint8_t>(moved ? bytes + at - bit : at);
      table[bytes + i] = static_cast<std::uint8_t>(moved ? bytes + at : at + bit);
    }
    if (shuffled) shuffle.clear();
  }
  return tables;
}

// Pieces of 2^log2 bits of the buffer and where they lie outside, in bytes.
std::vector<std::pair<std::int64_t, std::int64_t>> pieces(const Positions& at, int log2,
                                                          const std::vector<std::int64_t>& places) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all(std::size_t{1} << (at.end() - log2));
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t bits = 0;
    for (int p = log2; p < at.end(); ++p) {
      if ((i >> (p - log2) & 1U) != 0) bits += places[at[p]];
    }
    all[i] = {static_cast<std::int64_t>(i << (log2 - 3)), bits / 8};
  }
  return all;
}

// Where each register of the buffer lies outside, when pieces of 2^piece_log2 bits hold whole ones.
std::vector<std::int64_t> registers(const Positions& at, int piece_log2, int register_log2,
                                    const std::vector<std::int64_t>& places) {
  std::vector<std::int64_t> outside;
  if (piece_log2 < register_log2) return outside;
  for (const auto& piece : pieces(at, register_log2, places)) outside.push_back(piece.second);
  return outside;
}

// From the source into the buffer.
void plan_lines(BlockPlan& plan, const Positions& at, int line_log2, int register_log2,
                const std::vector<std::int64_t>& from) {
  plan.line_bytes = std::int64_t{1} << (line_log2 - 3);
  for (const auto& [buffer, outside] : pieces(at, line_log2, from)) {
    plan.lines.push_back({.from = outside, .to = buffer});
  }
  plan.register_from = registers(at, line_log2, register_log2, from);
}

// From the buffer to the output.
void plan_chunks(BlockPlan& plan, const Positions& at, int chunk_log2, int register_log2,
                 const std::vector<std::int64_t>& to) {
  plan.chunk_bytes = std::int64_t{1} << (chunk_log2 - 3);
  plan.register_to = registers(at, chunk_log2, register_log2, to);
  for (const auto& [buffer, outside] : pieces(at, chunk_log2, to)) {
    plan.chunks.push_back({.from = buffer, .to = outside});
  }
  std::ranges::sort(plan.chunks, {}, &BlockCopy::to);
}

}  // namespace

BlockPlaces block_places(const std::function<Place(std::int64_t n, std::int64_t k)>& place,
                         Element first, Dims block) {
  BlockPlaces places;
  const std::int64_t base = bit_address(place(first.n, first.k));
  for (std::int64_t n = 0; n < block.n; ++n) {
    places.n.push_back(bit_address(place(first.n + n, first.k)) - base);
  }
  for (std::int64_t k = 0; k < block.k; ++k) {
    places.k.push_back(bit_address(place(first.n, first.k + k)) - base);
  }
  return places;
}

BlockMoves BlockPlan::moves() const {
  const bool any = !exchanges.empty() || !shuffle.empty();
  return {.lines = lines.data(),
          .line_count = std::ssize(lines),
          .line_bytes = line_bytes,
          .exchanges = exchanges.data(),
          .exchange_count = std::ssize(exchanges),
          .pairs = pairs.empty() ? nullptr : pairs.data(),
          .shuffle = shuffle.empty() ? nullptr : shuffle.data(),
          .chunks = chunks.data(),
          .chunk_count = std::ssize(chunks),
          .chunk_bytes = chunk_bytes,
          .buffer_bytes = buffer_bytes,
          .register_from = any && !register_from.empty() ? register_from.data() : nullptr,
          .register_to = register_to.empty() ? nullptr : register_to.data(),
          .later = nullptr,
          .nibbles = nullptr,
          .bytes = nullptr,
          .first_byte = 0,
          .last_byte = 255,
          .stream = true};
}

std::optional<BlockPlan> plan_block(const BlockPlaces& source, const BlockPlaces& out,
                                    int element_bits, const BlockMover& mover) {
  const int register_log2 = mover.register_log2;
  const auto from = index_places(source);
  const auto to = index_places(out);
  if (!from || !to) return std::nullopt;
  const int first = log2_of(element_bits);
  const int end = first + static_cast<int>(from->size());
  const auto source_line = line_of(*from, element_bits);
  const auto out_line = line_of(*to, element_bits);
  const int line_log2 = first + static_cast<int>(source_line.size());
  const int out_log2 = first + static_cast<int>(out_line.size());
  const bool fits = end > register_log2 && (std::int64_t{1} << (end - 3)) <= block_buffer_bytes;
  if (!fits || std::min(line_log2, out_log2) < smallest_piece_log2) return std::nullopt;

  Positions need(first, from->size());
  for (std::size_t i = 0; i < out_line.size(); ++i) need[first + static_cast<int>(i)] = out_line[i];
  const int need_end = std::min(out_log2, register_log2);
  Positions at = place_lines(source_line, need, need_end, first);

  BlockPlan plan;
  plan.buffer_bytes = std::int64_t{1} << (end - 3);
  plan_lines(plan, at, line_log2, register_log2, *from);
  const Inside inside{.first = first, .need_end = need_end, .end = register_log2};
  Exchanges exchanges(at, need, inside);
  if (mover.shuffles) {
    exchanges.in_order(first, std::min(byte_log2, need_end));
    exchanges.in_any_order(std::max(first, byte_log2), need_end);
    plan.shuffle = shuffle_bytes(at, need, inside);
  } else {
    exchanges.in_order(first, need_end);
  }
  plan.exchanges = exchanges.take();
  if (std::ssize(plan.exchanges) > most_block_exchanges) return std::nullopt;
  if (mover.pairs) plan.pairs = pair_tables(plan.exchanges, plan.shuffle, register_log2);
  int chunk_log2 = need_end;
  while (chunk_log2 < out_log2 && at[chunk_log2] == need[chunk_log2]) ++chunk_log2;
  plan_chunks(plan, at, chunk_log2, register_log2, *to);
  return plan;
}

}  // namespace fewbit
