// SPDX-License-Identifier: Apache-2.0
#include "prepared_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "core/counted.hpp"
#include "fewbit/prepare.hpp"
#include "findings_page.hpp"
#include "prepared/manifest.hpp"
#include "progress.hpp"
#include "select/backend.hpp"
#include "select/select.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

std::string slice_text(const PrepareSplit& split) {
  if (split.whole()) return "all experts whole";
  return fmt::format("rank {} of {} (tensor {}, expert {})", split.rank,
                     split.tensor_ranks * split.expert_ranks, split.tensor_ranks,
                     split.expert_ranks);
}

std::string target_text(const PreparedManifest& manifest) {
  if (manifest.layers.empty()) return "no layers";
  const PreparedLayerInfo& first = manifest.layers.front();
  const auto alike =
      std::ranges::count(manifest.layers, first.backend, &PreparedLayerInfo::backend);
  return fmt::format("prepared for {} ({}), {} of {}", first.backend, layouts_text(first.plan),
                     alike, counted(manifest.layers.size(), "layer"));
}

// Which backend takes its first layer on a device, or why none does.
std::string reader_text(const PreparedModel& model, const std::string& device_text) {
  const auto device = describe_device(device_text);
  if (!device) return device.error().message();
  const PreparedLayerInfo& first = model.manifest().layers.front();
  const Backend& backend = *find_backend(first.backend);
  if (backend.runs_here()) {
    const auto layer = model.layer(first.layer, DType::bf16, 1, *device, {});
    return layer ? "runs on " + layer->selection.chosen : layer.error().message();
  }
  const std::vector<Refusal> refusals = refusals_of(backend, first.problem, *device);
  const std::string whose = fmt::format("{} of {}", backend.name, engine_name(backend.engine));
  if (refusals.empty()) return fmt::format("read by {}; fewbit does not run it", whose);
  return fmt::format("{} refuses it: {}", whose, refusals_text(refusals));
}

// The second half of the verdict.
std::string verdict_text(const PreparedModel& model, const std::string& device) {
  const Backend& backend = *find_backend(model.manifest().layers.front().backend);
  if (backend.runs_here()) return reader_text(model, device);
  return fmt::format("prepared for {} of {}, which fewbit itself does not run", backend.name,
                     engine_name(backend.engine));
}

std::string place_text(const std::string& device) { return device == "cpu" ? "here" : device; }

Json page_json(const PreparedModel& model, const std::string& device) {
  const PreparedManifest& manifest = model.manifest();
  Json out;
  out.set("path", model.folder().string());
  out.set("prepared", true);
  out.set("target", target_text(manifest));
  out.set("tensor_ranks", manifest.split.tensor_ranks);
  out.set("expert_ranks", manifest.split.expert_ranks);
  out.set("rank", manifest.split.rank);
  out.set("layers", static_cast<std::uint64_t>(manifest.layers.size()));
  out.set("files", static_cast<std::uint64_t>(manifest.files.size()));
  out.set("prepared_bytes", model.bytes());
  out.set("source_xxh3_128", manifest.source_hash);
  out.set("device", device);
  out.set("here", reader_text(model, device));
  return out;
}

void print_page(const PreparedModel& model, const std::string& device) {
  const PreparedManifest& manifest = model.manifest();
  Table table({Align::left, Align::left});
  table.add(
      {"prepared", fmt::format("{}  ({}, experts {})", model.folder().string(),
                               counted(manifest.files.size(), "file"), bytes_text(model.bytes()))});
  table.add({"target", target_text(manifest)});
  table.add({"slice", slice_text(manifest.split)});
  std::string names;
  for (const PreparedFile& file : manifest.source) {
    const bool weights = file.name.ends_with(".safetensors") || file.name.ends_with(".gguf");
    if (weights) names += (names.empty() ? "" : ", ") + file.name;
  }
  table.add({"source", fmt::format("hash {} ({})", manifest.source_hash, names)});
  table.add({place_text(device), reader_text(model, device)});
  print_out("{}", Lines{table.text(0)});
}

Result<VerifyReport> verify(const PreparedCheck& check, Executor& executor) {
  ProgressBar bar("verifying", Unit::bytes);
  if (check.source.empty()) {
    return verify_prepared(check.path, nullptr, bar.callback(), executor);
  }
  FEWBIT_TRY(const Checkpoint source, Checkpoint::open(check.source));
  return verify_prepared(check.path, &source, bar.callback(), executor);
}

}  // namespace

Result<int> check_prepared(const PreparedCheck& check) {
  FEWBIT_TRY(describe_device(check.device));
  FEWBIT_TRY(const PreparedModel model, PreparedModel::open(check.path));
  std::optional<VerifyReport> verified;
  if (!check.headers_only) {
    FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(0));
    FEWBIT_TRY(verified, verify(check, *pool));
  }
  if (check.json) {
    Json out = page_json(model, check.device);
    out.set("result", result_json({}));
    if (verified) out.set("verified_files", verified->files);
    if (!check.source.empty() && verified) out.set("verified_experts", verified->experts);
    print_json(out);
    return exit_fine;
  }
  print_page(model, check.device);
  if (!verified) {
    print_out("sizes and headers fit; contents were not read\n");
  } else {
    print_out("hashes checked of {} ({})\n", counted(verified->files, "file"),
              bytes_text(verified->bytes));
  }
  if (!check.source.empty() && verified) {
    print_out(
        "compared with the source: {}; all other tensors and every field of the manifest are the "
        "source's\n",
        counted(verified->experts, "expert"));
  }
  print_out("result: fine; {}\n", verdict_text(model, check.device));
  return exit_fine;
}

Result<int> inspect_prepared(const std::string& path, const CommonOptions& options) {
  FEWBIT_TRY(const PreparedModel model, PreparedModel::open(path));
  Json layers{Json::Array{}};
  Table table({Align::left, Align::left, Align::left, Align::left, Align::right});
  table.add({"layer", "buffer", "layout", "made from", "bytes"});
  for (const PreparedLayerInfo& layer : model.manifest().layers) {
    for (const PlannedBuffer& buffer : layer.plan.buffers) {
      const std::uint64_t bytes =
          static_cast<std::uint64_t>(layer.plan.experts) * buffer.expert_bytes;
      table.add({std::to_string(layer.layer), buffer.name, buffer.layout, buffer.source,
                 bytes_text(bytes)});
      Json entry;
      entry.set("layer", layer.layer);
      entry.set("buffer", buffer.name);
      entry.set("layout", buffer.layout);
      entry.set("source", buffer.source);
      entry.set("file", layer.file);
      entry.set("bytes", bytes);
      layers.push_back(std::move(entry));
    }
  }
  if (options.json) {
    Json out = page_json(model, "cpu");
    out.set("buffers", layers);
    print_json(out);
    return exit_fine;
  }
  print_page(model, "cpu");
  print_out("\n{}", Lines{table.text()});
  return exit_fine;
}

Result<MoeProblem> prepared_problem(const std::string& path, int layer,
                                    std::optional<DType> activation_dtype) {
  FEWBIT_TRY(const PreparedManifest manifest, read_manifest(path));
  for (const PreparedLayerInfo& info : manifest.layers) {
    if (layer >= 0 && info.layer != layer) continue;
    MoeProblem problem = info.problem;
    problem.activation_dtype = activation_dtype.value_or(problem.activation_dtype);
    return problem;
  }
  return Error{ErrorCode::not_found,
               fmt::format("no routed experts of layer {} among {} prepared layers", layer,
                           manifest.layers.size()),
               path};
}

Result<std::string> prepared_line(const std::string& path) {
  FEWBIT_TRY(const PreparedManifest manifest, read_manifest(path));
  return fmt::format("{}; {}", target_text(manifest), slice_text(manifest.split));
}

}  // namespace fewbit::cli
