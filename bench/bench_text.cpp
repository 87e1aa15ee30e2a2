// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "bench/limit_track.hpp"
#include "bench/measure.hpp"
#include "core/counted.hpp"

namespace fewbit::bench {
namespace {

// GB/s with a decimal; more digits where that would be 0.0.
std::string rate_text(double bytes_per_second) {
  const double rate = bytes_per_second * 1e-9;
  return rate >= 1 ? fmt::format("{:.1f}", rate) : fmt::format("{:.3g}", rate);
}

// What the machine can do; of a card, whose multiply-adds aren't measured, what a copy moves.
std::string limits_text(const MachineLimits& limits) {
  if (limits.fma_flops_per_second == 0) {
    return fmt::format("a copy on the card moves {:.1f} GB/s", limits.read_bytes_per_second * 1e-9);
  }
  std::string text =
      fmt::format("{}, read {:.1f} GB/s, FMA {:.3f} TFLOP/s", counted(limits.threads, "thread"),
                  limits.read_bytes_per_second * 1e-9, limits.fma_flops_per_second * 1e-12);
  if (limits.tile_flops_per_second != 0) {
    text += fmt::format(", tiles {:.2f} TFLOP/s", limits.tile_flops_per_second * 1e-12);
  }
  return text;
}

std::string sizes_text(const LayerShape& shape) {
  if (shape.linear) {
    return fmt::format("{} x {}", shape.linear->out_features, shape.linear->in_features);
  }
  return fmt::format("{}, {}, {}, {}", shape.hidden_size, shape.intermediate_size,
                     shape.num_experts, shape.top_k);
}

// Fractions of the arithmetic's limits, and their titles.
std::string arithmetic_titles(const MachineLimits& limits) {
  return std::string(limits.fma_flops_per_second == 0 ? "" : "   of FMA") +
         (limits.tile_flops_per_second == 0 ? "" : " of tiles");
}
std::string arithmetic_text(const LayerTiming& timing, const MachineLimits& limits) {
  std::string text;
  if (limits.fma_flops_per_second != 0) text = fmt::format(" {:>8.2f}", timing.of_fma(limits));
  if (limits.tile_flops_per_second != 0) text += fmt::format(" {:>8.2f}", timing.of_tiles(limits));
  return text;
}

}  // namespace

std::string bench_text(const LayerBench& bench) {
  const MachineLimits& limits = bench.limits;
  const bool fma = limits.fma_flops_per_second != 0;
  std::string text = fmt::format(
      "{} ({}) {} on {}: {}; {} of {:.1f} MB, prepared at {} GB/s\n", bench.shape.name,
      sizes_text(bench.shape), bench.shape.scheme, bench.backend, limits_text(limits),
      counted(bench.copies, "copy", "copies"), static_cast<double>(bench.weight_bytes()) * 1e-6,
      rate_text(static_cast<double>(bench.prepared.owned_bytes) / bench.prepare_seconds));
  text += fmt::format("  {:>6} {:>10} {:>8} {:>8} {:>9}{}\n", "tokens", "ms", "GB/s",
                      fma ? "of read" : "of copy", "TFLOP/s", arithmetic_titles(limits));
  for (const LayerTiming& t : bench.timings) {
    text += fmt::format("  {:>6} {:>10.3f} {:>8} {:>8.2f} {:>9.3g}{}\n", t.tokens, t.seconds * 1e3,
                        rate_text(t.bytes_per_second()), t.of_read(limits),
                        t.flops_per_second() * 1e-12, arithmetic_text(t, limits));
  }
  const std::string note = limit_note(bench);
  return note.empty() ? text : text + "  note: " + note + "\n";
}

}  // namespace fewbit::bench
