// SPDX-License-Identifier: Apache-2.0
// fewbit quantize DIR -o OUT: from 16-bit weights to a quantized checkpoint.
#include "fewbit/quantize.hpp"

#include <fmt/format.h>

#include <memory>

#include "command.hpp"
#include "core/counted.hpp"
#include "leftovers.hpp"
#include "progress.hpp"

namespace fewbit::cli {
namespace {

struct Options : CommonOptions {
  std::string path;
  std::string output;
  QuantizeOptions quantize;
  std::uint64_t max_shard_megabytes = 5000;
};

void print_report(const Options& options, const QuantizeReport& report) {
  print_out(
      "wrote {}\n  {} quantized to {}, {} kept\n  {} -> {} ({:.2f}x smaller)\n"
      "  relative error of all quantized weights w together, ||w - q(w)|| / ||w||: {:.4f}\n",
      options.output, counted(report.quantized_tensors, "weight tensor"), options.quantize.scheme,
      counted(report.kept_tensors, "other"), bytes_text(report.source_bytes),
      bytes_text(report.output_bytes),
      static_cast<double>(report.source_bytes) / static_cast<double>(report.output_bytes),
      report.relative_error);
  if (!report.worst.name.empty()) {
    print_out(
        "  worst matrix by mean block error: {}\n"
        "    mean of ||b - q(b)|| / ||b|| over its blocks b of 16 weights that are not all zero: "
        "{:.4f}; {:.1f} % of these became zero\n",
        report.worst.name, report.worst.block_error, 100.0 * report.worst.erased_share);
  }
  if (report.erased_blocks > 0 || report.clamped_scales > 0) {
    print_out("  became zero: {} of small weights; clamped: {}\n",
              counted(report.erased_blocks, "block"),
              counted(report.clamped_scales, "block scale"));
  }
}

Json report_json(const Options& options, const QuantizeReport& report) {
  Json out;
  out.set("output", options.output);
  out.set("scheme", options.quantize.scheme);
  out.set("quantized_tensors", report.quantized_tensors);
  out.set("kept_tensors", report.kept_tensors);
  out.set("source_bytes", report.source_bytes);
  out.set("output_bytes", report.output_bytes);
  out.set("relative_error_all_weights", report.relative_error);
  out.set("erased_blocks", report.erased_blocks);
  out.set("clamped_scales", report.clamped_scales);
  Json worst;
  worst.set("name", report.worst.name);
  worst.set("mean_block_relative_error", report.worst.block_error);
  worst.set("erased_block_fraction", report.worst.erased_share);
  out.set("worst_matrix", worst);
  return out;
}

Result<int> run_quantize(Options& options) {
  FEWBIT_TRY(const Checkpoint source, open_checkpoint(options.path));
  FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(options.threads));
  clean_leftovers(options.output);
  ProgressBar bar("quantizing", Unit::bytes);
  options.quantize.progress = bar.callback();
  options.quantize.max_shard_bytes = options.max_shard_megabytes * 1'000'000;
  FEWBIT_TRY(const QuantizeReport report,
             quantize_checkpoint(source, options.output, options.quantize, *pool));
  if (options.json) {
    print_json(report_json(options, report));
  } else {
    print_report(options, report);
  }
  return exit_fine;
}

}  // namespace

void add_quantize(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("quantize", "16-bit checkpoint to ModelOpt NVFP4, experts by default");
  command->add_option("DIR", options->path, "Source checkpoint (bf16, f16 or f32)")
      ->required()
      ->check(not_empty);
  command->add_option("-o,--output", options->output, "New directory")->required();
  command->add_option("--scheme", options->quantize.scheme, "Target scheme: nvfp4")
      ->transform(one_of({"nvfp4"}));
  command->add_flag("--attention", options->quantize.attention,
                    "Quantize the q/k/v/o projections too");
  command->add_flag("--allow-erased", options->quantize.allow_erased,
                    "Write matrices of which more than half becomes zero");
  command->add_option("--max-shard-mb", options->max_shard_megabytes, "Largest shard, in MB")
      ->check(whole_number(1, 1'000'000));
  add_threads_option(*command, *options);
  add_json_option(*command, *options);
  command->footer(
      "Router, norms, embedding and head stay 16-bit; activations too (quant_algo W4A16_NVFP4).\n"
      "Gate and up of an expert, and q, k and v, share one global scale, as engines fuse them.\n"
      "The output appears when it is complete.\n"
      "Two errors are reported, both fractions without a unit, of weights w and what is read back, "
      "q(w):\n"
      "  relative error of all weights: sqrt(sum (w - q(w))^2) / sqrt(sum w^2) over every "
      "quantized "
      "weight;\n"
      "  mean block error of a matrix: the same quotient within each block of 16 weights, then the "
      "mean over\n"
      "  its blocks that are not all zero. One huge weight hides what it did to the others in the "
      "first, not here.\n"
      "Example:\n  fewbit quantize Qwen3-30B-A3B -o Qwen3-30B-A3B-NVFP4");
  set_body(*command, *options, exit_code, [options] { return run_quantize(*options); });
}

}  // namespace fewbit::cli
