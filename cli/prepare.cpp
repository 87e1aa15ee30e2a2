// SPDX-License-Identifier: Apache-2.0
// fewbit prepare DIR -o OUT: experts as a backend's kernels read them, in files that are mapped.
#include "fewbit/prepare.hpp"

#include <fmt/format.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <memory>
#include <utility>

#include "command.hpp"
#include "core/counted.hpp"
#include "findings_page.hpp"
#include "layer_dtype.hpp"
#include "model/families/family.hpp"
#include "problem_options.hpp"
#include "progress.hpp"
#include "select/select.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::string output;
  std::string device;
  std::string activation_dtype;
  std::string exchange = "none";
  PrepareOptions prepare;
};

double gigabytes_a_second(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) * 1e-9 / seconds : 0;
}

std::string rate_text(const PrepareReport& report) {
  if (report.packed_source_bytes == 0) return "nothing was left to pack";
  return fmt::format("packed at {:.2f} GB/s",
                     gigabytes_a_second(report.packed_source_bytes, report.packing_seconds));
}

void print_verified(const VerifyReport& verified) {
  print_out("  verified: hashes of {}, {} against the source\n", counted(verified.files, "file"),
            counted(verified.experts, "expert"));
}

void print_report(const Options& options, const PrepareReport& report) {
  print_out("wrote {}\n  {} of {} for {} ({}), {} activations\n", options.output,
            counted(report.experts, "expert"), counted(report.layers, "layer"), report.backend,
            report.layout, dtype_name(report.activation_dtype));
  if (report.resumed_experts > 0) {
    print_out("  done by an earlier run: {}\n", counted(report.resumed_experts, "expert"));
  }
  if (report.redone > 0) {
    print_out("  no longer as an earlier run wrote them, so done again: {}\n",
              counted(report.redone, "expert or tensor", "experts or tensors"));
  }
  if (report.journal_alone) {
    print_out("  begun anew: {}.partial.journal was there without its folder\n", options.output);
  }
  const PrepareSplit& split = options.prepare.split;
  if (!split.whole()) {
    print_out("  rank {} of {} (tensor {}, expert {})\n", split.rank,
              split.tensor_ranks * split.expert_ranks, split.tensor_ranks, split.expert_ranks);
  }
  print_out("  {} -> {}, {}, {:.1f} s with flushing\n", bytes_text(report.source_bytes),
            bytes_text(report.output_bytes), rate_text(report), report.seconds);
  if (report.verified) print_verified(*report.verified);
  print_out("{}", Lines{source_warnings_text(report.source_warnings, "was made of")});
}

Json report_json(const Options& options, const PrepareReport& report) {
  Json out;
  out.set("output", options.output);
  out.set("backend", report.backend);
  out.set("layout", report.layout);
  out.set("activation_dtype", std::string(dtype_name(report.activation_dtype)));
  out.set("layers", report.layers);
  out.set("experts", report.experts);
  out.set("resumed_experts", report.resumed_experts);
  out.set("redone", report.redone);
  out.set("journal_alone", report.journal_alone);
  out.set("tensor_ranks", options.prepare.split.tensor_ranks);
  out.set("expert_ranks", options.prepare.split.expert_ranks);
  out.set("rank", options.prepare.split.rank);
  out.set("source_bytes", report.source_bytes);
  out.set("output_bytes", report.output_bytes);
  out.set("packed_source_bytes", report.packed_source_bytes);
  out.set("packing_seconds", report.packing_seconds);
  out.set("gb_per_second",
          report.packed_source_bytes == 0
              ? Json(nullptr)
              : Json(gigabytes_a_second(report.packed_source_bytes, report.packing_seconds)));
  out.set("seconds", report.seconds);
  out.set("peak_rss_bytes", peak_rss_bytes());
  out.set("source_warnings", findings_json(report.source_warnings));
  if (!report.verified) return out;
  out.set("verified_files", report.verified->files);
  out.set("verified_experts", report.verified->experts);
  return out;
}

// Preparing knows more models than there are decoders, and more devices than this binary runs on.
void print_note(const Options& options, const Checkpoint& source, const PrepareReport& report) {
  const Backend* backend = find_backend(report.backend.substr(0, report.backend.find(',')));
  if (backend == nullptr || !backend->runs_here()) return;  // as --backend asked for
  const auto& device = options.prepare.device;
  const std::string unbuilt = device ? unbuilt_text(*backend, *device) : "";
  if (!unbuilt.empty()) print_err("note: this binary does not run it: not built: {}\n", unbuilt);
  const auto config = read_model_config(source);
  const auto family = config ? find_family(*config, "") : Result<const Family*>(config.error());
  if (family) return;
  print_err("note: eval and generate do not run this model: {}\n", family.error().what);
}

// Every expert takes and gives back the same sizes: the allocator keeps them, where glibc's would
// return each to the system and have it cleared page by page for the next expert.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int largest_kept = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, largest_kept);
  mallopt(M_TRIM_THRESHOLD, 2 * largest_kept);
#endif
}

Result<int> run_prepare(Options& options) {
  keep_freed_memory();
  options.prepare.activation_dtype = layer_dtype(options.activation_dtype);
  FEWBIT_TRY(options.prepare.exchange, exchange_from_name(options.exchange));
  if (!options.device.empty()) {
    const auto device = describe_device(options.device);
    if (!device && device.error().code == ErrorCode::invalid_argument) {
      return as_usage(device.error(), "--device");
    }
    if (!device) return device.error();
    options.prepare.device = *device;
  }
  FEWBIT_TRY(const Checkpoint source, open_checkpoint(options.path));
  FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(options.threads));
  ProgressBar checking("checking", Unit::modules);
  ProgressBar preparing("preparing", Unit::bytes);
  ProgressBar verifying("verifying", Unit::bytes);
  options.prepare.checking_progress = checking.callback();
  options.prepare.progress = preparing.callback();
  options.prepare.verify_progress = verifying.callback();
  const auto report = prepare_checkpoint(source, options.output, options.prepare, *pool);
  if (!report) return ranks_by_option(report.error());
  if (options.json) {
    print_json(report_json(options, *report));
  } else {
    print_report(options, *report);
  }
  print_note(options, source, *report);
  return exit_fine;
}

}  // namespace

void add_prepare(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "prepare", "Experts as a backend's kernels read them, written once, mapped ever after");
  command->add_option("DIR", options->path, "Source checkpoint")->required()->check(not_empty);
  command->add_option("-o,--output", options->output, "New directory")->required();
  add_any_backend_option(*command, options->prepare.backend);
  command->add_option("--device", options->device,
                      "Machine that it is prepared for (as in explain); default: this one");
  add_layer_dtype_option(*command, options->activation_dtype);
  PrepareSplit& split = options->prepare.split;
  const auto ranks = whole_number(1, 65536);
  command->add_option("--tp", split.tensor_ranks, "Ranks that share each expert's features")
      ->check(ranks);
  command->add_option("--ep", split.expert_ranks, "Ranks that whole experts are dealt to")
      ->check(ranks);
  command->add_option("--rank", split.rank, "Which slice: expert rank * TP + tensor rank")
      ->check(whole_number(0, 1 << 30));
  add_exchange_option(*command, options->exchange);
  command->add_flag("--verify", options->prepare.verify,
                    "Before OUT appears: check every hash, plan again from the source and compare "
                    "every field, unpack every expert and compare it");
  command->add_flag("--restart", options->prepare.restart,
                    "Drop what an earlier run has left unfinished");
  add_threads_option(*command, *options);
  add_json_option(*command, *options);
  command->footer(
      "The source is checked first, as `fewbit check` does: errors in its weights and configs are\n"
      "refused, warnings are told; its tokenizer is copied as it is.\n"
      "Works in OUT.partial; after any interruption the same command goes on where it was and "
      "gives\nthe same bytes. eval and generate take OUT as they take DIR.\n"
      "Examples:\n  fewbit prepare models/tiny-moe -o tiny-moe-prepared --verify\n"
      "  fewbit prepare DIR -o OUT --tp 2 --rank 1\n"
      "  fewbit prepare DIR -o OUT --backend marlin --device sm_90");
  set_body(*command, *options, exit_code, [options] { return run_prepare(*options); });
}

}  // namespace fewbit::cli
