// SPDX-License-Identifier: Apache-2.0
#include "bench_page.hpp"

#include <fmt/format.h>

#include "bench/limit_track.hpp"
#include "command.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

const double* seconds_there(const OtherRun& other, const bench::LayerBench& layer,
                            const bench::LayerTiming& timing) {
  const auto found = other.find({layer.shape.name, layer.shape.scheme, timing.tokens});
  return found == other.end() ? nullptr : &found->second;
}

Json timing_json(const bench::LayerBench& layer, const bench::LayerTiming& timing,
                 const OtherRun& other) {
  Json out;
  out.set("tokens", timing.tokens);
  out.set("median_seconds", timing.seconds);
  out.set("calls", timing.calls);
  out.set("weight_bytes_per_second", timing.bytes_per_second());
  out.set("flops_per_second", timing.flops_per_second());
  out.set("fraction_of_read_limit", timing.of_read(layer.limits));
  // Those of a card's arithmetic aren't measured.
  if (layer.limits.fma_flops_per_second != 0) {
    out.set("fraction_of_fma_limit", timing.of_fma(layer.limits));
  }
  if (layer.limits.tile_flops_per_second != 0) {
    out.set("fraction_of_tile_limit", timing.of_tiles(layer.limits));
  }
  if (const double* there = seconds_there(other, layer, timing)) {
    out.set("other_median_seconds", *there);
    out.set("times_as_fast_as_other", *there / timing.seconds);
  }
  return out;
}

Json limits_json(const bench::MachineLimits& limits) {
  Json out;
  out.set("threads", limits.threads);
  out.set("read_bytes_per_second", limits.read_bytes_per_second);
  if (limits.fma_flops_per_second != 0) {
    out.set("fma_f32_flops_per_second", limits.fma_flops_per_second);
  }
  if (limits.tile_flops_per_second != 0) {
    out.set("tile_bf16_flops_per_second", limits.tile_flops_per_second);
  }
  return out;
}

Result<void> add_layer(const Json& layer, const std::string& where, OtherRun& run) {
  const Json* timings = layer.find("timings");
  if (timings == nullptr || timings->as_array() == nullptr) {
    return Error{ErrorCode::corrupt, "a layer without timings", where};
  }
  for (const Json& timing : *timings->as_array()) {
    const Json* tokens = timing.find("tokens");
    const Json* seconds = timing.find("median_seconds");
    const auto count = tokens == nullptr ? std::nullopt : tokens->as_int64();
    const auto value = seconds == nullptr ? std::nullopt : seconds->as_double();
    if (!count || !value || *value <= 0) {
      return Error{ErrorCode::corrupt, "a timing without tokens or median_seconds", where};
    }
    run[{layer.string_at("shape"), layer.string_at("scheme"), *count}] = *value;
  }
  return {};
}

}  // namespace

Result<OtherRun> read_other_run(const std::filesystem::path& path) {
  FEWBIT_TRY(const std::string text, read_text_file(path, largest_list));
  FEWBIT_TRY(const Json json, Json::parse(text, path.string()));
  const Json* layers = json.find("layers");
  if (layers == nullptr || layers->as_array() == nullptr) {
    return Error{ErrorCode::corrupt,
                 "no list of layers, expected what `fewbit bench --json` printed", path.string()};
  }
  OtherRun run;
  for (const Json& layer : *layers->as_array()) {
    FEWBIT_TRY(add_layer(layer, path.string(), run));
  }
  return run;
}

Json layer_json(const bench::LayerBench& layer, const OtherRun& other) {
  Json timings{Json::Array{}};
  for (const bench::LayerTiming& t : layer.timings) timings.push_back(timing_json(layer, t, other));
  const std::string note = bench::limit_note(layer);
  Json out;
  out.set("shape", layer.shape.name);
  if (const auto& linear = layer.shape.linear) {
    out.set("out_features", linear->out_features);
    out.set("in_features", linear->in_features);
  } else {
    out.set("hidden_size", layer.shape.hidden_size);
    out.set("intermediate_size", layer.shape.intermediate_size);
    out.set("num_experts", layer.shape.num_experts);
    out.set("top_k", layer.shape.top_k);
  }
  out.set("scheme", layer.shape.scheme);
  out.set("backend", layer.backend);
  out.set("layout", layer.prepared.layout);
  Json limits = limits_json(layer.limits);
  limits.set("measurements", layer.limit_measurements);
  limits.set("lowest", limits_json(layer.lowest));
  out.set("limits", limits);
  out.set("limit_disturbed", !note.empty());
  if (!note.empty()) out.set("limit_note", note);
  out.set("copies", layer.copies);
  out.set("prepare_seconds", layer.prepare_seconds);
  out.set("prepared_bytes", layer.prepared.owned_bytes);
  out.set("timings", timings);
  return out;
}

std::string comparison_text(const bench::LayerBench& layer, const OtherRun& other) {
  Table table({Align::right, Align::right, Align::right, Align::right});
  table.add({"tokens", "ms there", "ms here", "times as fast here"});
  bool any = false;
  for (const bench::LayerTiming& timing : layer.timings) {
    const double* there = seconds_there(other, layer, timing);
    if (there == nullptr) continue;
    any = true;
    table.add({std::to_string(timing.tokens), fmt::format("{:.3f}", *there * 1e3),
               fmt::format("{:.3f}", timing.seconds * 1e3),
               fmt::format("{:.2f}", *there / timing.seconds)});
  }
  return any ? table.text() : "  the other run has no such layer with these numbers of tokens\n";
}

}  // namespace fewbit::cli
