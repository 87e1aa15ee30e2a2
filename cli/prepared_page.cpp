// SPDX-License-Identifier: Apache-2.0
#include "prepared_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "core/counted.hpp"
#include "fewbit/prepare.hpp"
#include "findings_page.hpp"
#include "model/families/family.hpp"
#include "prepared/manifest.hpp"
#include "prepared/prepared_readers.hpp"
#include "progress.hpp"
#include "run_verdict.hpp"
#include "select/backend.hpp"
#include "select/select.hpp"
#include "table.hpp"

namespace fewbit::cli {
namespace {

int all_ranks(const PrepareSplit& split) { return split.tensor_ranks * split.expert_ranks; }

// "rank 3 of 4 (tensor 2, expert 2): experts 8 to 15 of 16, features 64 to 127 of 128"
std::string slice_text(const PreparedManifest& manifest) {
  const PrepareSplit& split = manifest.split;
  if (split.whole()) return "all experts whole";
  const PreparedLayerInfo& first = manifest.layers.front();
  const std::int64_t features =
      std::min(first.problem.intermediate_size, first.all_features - first.first_feature);
  return fmt::format(
      "rank {} of {} (tensor {}, expert {}): experts {} to {} of {}, features {} to "
      "{} of {}",
      split.rank, all_ranks(split), split.tensor_ranks, split.expert_ranks, first.first_expert,
      first.first_expert + first.problem.num_experts - 1, first.all_experts, first.first_feature,
      first.first_feature + features - 1, first.all_features);
}

std::string target_text(const PreparedManifest& manifest) {
  const PreparedLayerInfo& first = manifest.layers.front();
  const auto alike =
      std::ranges::count(manifest.layers, first.backend, &PreparedLayerInfo::backend);
  return fmt::format("prepared for {} ({}), {} of {}", first.backend, layouts_text(first.plan),
                     alike, counted(manifest.layers.size(), "layer"));
}

// What reads the layers on a device; each is asked.
struct Readers {
  std::vector<std::string> backends;  // each once
  std::string unbuilt;                // what this binary lacks of one
  std::string refusing;               // of the first layer that nothing reads: "cuda_moe"
  std::string needs;                  // and what that refuses
  bool forced = false;                // by FEWBIT_BACKEND: others may read it
  std::optional<Error> error;         // the same

  bool all() const { return !error; }
  std::string names() const { return fmt::format("{}", fmt::join(backends, ", ")); }
};

Result<Readers> readers_on(const PreparedManifest& manifest, const DeviceInfo& device) {
  Readers out;
  for (const PreparedLayerInfo& layer : manifest.layers) {
    FEWBIT_TRY(const PreparedReaders of,
               prepared_readers(layer, layer.problem, device,
                                {.backend = "", .engine = engine_of(layer)}));
    if (of.error) {
      out.refusing = of.refusing;
      out.forced = of.selection.forced && engine_of(layer) == Engine::fewbit;
      out.needs = of.needs.empty() ? of.error->what : of.needs;
      out.error = of.error;
      return out;
    }
    if (std::ranges::find(out.backends, of.selection.chosen) != out.backends.end()) continue;
    out.backends.push_back(of.selection.chosen);
    const Candidate* chosen = find_candidate(of.selection, of.selection.chosen);
    if (!chosen->unbuilt.empty()) out.unbuilt = chosen->unbuilt;
  }
  return out;
}

// What the page says of a prepared model on a device.
struct Verdict {
  Engine engine = Engine::fewbit;
  bool slice = false;
  bool whole_model = false;  // eval and generate run it, on a machine that is here
  bool described = false;
  Readers readers;

  bool own() const { return engine == Engine::fewbit; }
  // Of a described device, that fits behind what is read there.
  std::string unbuilt() const {
    return readers.unbuilt.empty() ? "" : "; not built: " + readers.unbuilt;
  }
};

// The rest of the model too, as eval and generate need it.
bool is_whole_model(const std::filesystem::path& folder) {
  const auto checkpoint = Checkpoint::open(folder);
  if (!checkpoint || checkpoint->gguf_metadata() != nullptr) return false;
  const auto config = read_model_config(*checkpoint);
  std::error_code ignored;
  return config && find_family(*config, "") &&
         std::filesystem::exists(folder / "tokenizer.json", ignored);
}

Result<Verdict> verdict_of(const PreparedModel& model, const DeviceInfo& device) {
  Verdict out;
  const PreparedManifest& manifest = model.manifest();
  out.engine = engine_of(manifest.layers.front());
  out.slice = !manifest.split.whole();
  out.described = device.described;
  FEWBIT_TRY(out.readers, readers_on(manifest, device));
  out.whole_model = out.own() && !out.slice && out.readers.all() && is_whole_model(model.folder());
  return out;
}

// On a device: which backends read it, or why none does.
std::string reader_text(const Verdict& verdict) {
  const Readers& readers = verdict.readers;
  const std::string of =
      verdict.own() ? std::string() : fmt::format(" of {}", engine_name(verdict.engine));
  if (readers.forced) {
    return fmt::format("{}, which FEWBIT_BACKEND forces, refuses it: {}", readers.refusing,
                       readers.needs);
  }
  if (!readers.all()) {
    return fmt::format("{}{}{} refuses it: {}", verdict.own() ? "nothing reads it; " : "",
                       readers.refusing, of, readers.needs);
  }
  if (!verdict.own()) {
    return fmt::format("read by {}{}; fewbit does not run it", readers.names(), of);
  }
  const char* runs = verdict.slice ? "read by" : verdict.described ? "would run on" : "runs on";
  return fmt::format("{} {}{}", runs, readers.names(), verdict.unbuilt());
}

// Who has a use for a slice.
std::string user_text(const Verdict& verdict, const PrepareSplit& split) {
  const std::string who =
      verdict.own() ? fmt::format("a program that opens all {} ranks' and adds up their outputs",
                                  all_ranks(split))
                    : fmt::format("that rank of {}", engine_name(verdict.engine));
  return fmt::format("one rank's slice, for {}; eval and generate do not run it alone", who);
}

// The second half of the result line.
std::string result_of(const Verdict& verdict, const PreparedManifest& manifest,
                      const std::string& machine) {
  if (verdict.slice) {
    return fmt::format("rank {} of {}, one rank's slice, which eval and generate do not run alone",
                       manifest.split.rank, all_ranks(manifest.split));
  }
  if (!verdict.own()) {
    return fmt::format("prepared for {} of {}, which fewbit itself does not run",
                       manifest.layers.front().backend, engine_name(verdict.engine));
  }
  return verdict_text({.part = false,
                       .whole_model = verdict.whole_model,
                       .machine = machine,
                       .backend = verdict.readers.all() ? verdict.readers.names() : "",
                       .unbuilt = verdict.readers.unbuilt,
                       .engines = {}});
}

std::vector<Finding> findings_of(const Verdict& verdict) {
  const Readers& readers = verdict.readers;
  if (!readers.forced) return {};
  return {
      forced_refusal(fmt::format("backend {} can't run it: {}", readers.refusing, readers.needs))};
}

std::string place_text(const std::string& device) { return device == "cpu" ? "here" : device; }
std::string machine_text(const std::string& device) {
  return device == "cpu" ? "this machine" : device;
}

Json page_json(const PreparedModel& model, const std::string& device, const Verdict& verdict) {
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
  out.set("here", reader_text(verdict));
  out.set("runnable", verdict.whole_model && verdict.readers.unbuilt.empty());
  return out;
}

void print_page(const PreparedModel& model, const std::string& device, const Verdict& verdict) {
  const PreparedManifest& manifest = model.manifest();
  Table table({Align::left, Align::left});
  table.add(
      {"prepared", fmt::format("{}  ({}, experts {})", model.folder().string(),
                               counted(manifest.files.size(), "file"), bytes_text(model.bytes()))});
  table.add({"target", target_text(manifest)});
  table.add({"slice", slice_text(manifest)});
  if (verdict.slice) table.add({"use", user_text(verdict, manifest.split)});
  std::string names;
  for (const PreparedFile& file : manifest.source) {
    const bool weights = file.name.ends_with(".safetensors") || file.name.ends_with(".gguf");
    if (weights) names += (names.empty() ? "" : ", ") + file.name;
  }
  table.add({"source", fmt::format("hash {} ({})", manifest.source_hash, names)});
  table.add({place_text(device), reader_text(verdict)});
  print_out("{}", Lines{table.text(0)});
}

Result<VerifyReport> verify(const PreparedCheck& check, Executor& executor) {
  ProgressBar bar("verifying", Unit::bytes);
  if (check.source.empty()) {
    return verify_prepared(check.path, nullptr, bar.callback(), executor);
  }
  FEWBIT_TRY(const Checkpoint source, open_checkpoint(check.source));
  return verify_prepared(check.path, &source, bar.callback(), executor);
}

}  // namespace

Result<int> check_prepared(const PreparedCheck& check) {
  FEWBIT_TRY(const DeviceInfo device, describe_device(check.device));
  FEWBIT_TRY(const PreparedModel model, PreparedModel::open(check.path));
  FEWBIT_TRY(const Verdict verdict, verdict_of(model, device));
  std::optional<VerifyReport> verified;
  if (!check.headers_only) {
    FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(0));
    FEWBIT_TRY(verified, verify(check, *pool));
  }
  const std::vector<Finding> findings = findings_of(verdict);
  if (check.json) {
    Json out = page_json(model, check.device, verdict);
    out.set("findings", findings_json(findings));
    out.set("result", result_json(findings));
    if (verified) out.set("verified_files", verified->files);
    if (!check.source.empty() && verified) out.set("verified_experts", verified->experts);
    print_json(out);
    return exit_fine;
  }
  print_page(model, check.device, verdict);
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
  if (!findings.empty()) print_out("\n{}", Lines{findings_text(findings, check.headers_only)});
  print_out("result: {}; {}\n", result_text(findings),
            result_of(verdict, model.manifest(), machine_text(check.device)));
  return exit_fine;
}

Result<int> inspect_prepared(const std::string& path, const CommonOptions& options) {
  FEWBIT_TRY(const DeviceInfo device, describe_device("cpu"));
  FEWBIT_TRY(const PreparedModel model, PreparedModel::open(path));
  FEWBIT_TRY(const Verdict verdict, verdict_of(model, device));
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
    Json out = page_json(model, "cpu", verdict);
    out.set("buffers", layers);
    print_json(out);
    return exit_fine;
  }
  print_page(model, "cpu", verdict);
  print_out("\n{}", Lines{table.text()});
  return exit_fine;
}

std::string prepared_line(const PreparedManifest& manifest) {
  return fmt::format("{}; {}", target_text(manifest), slice_text(manifest));
}

}  // namespace fewbit::cli
