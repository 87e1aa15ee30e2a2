// SPDX-License-Identifier: Apache-2.0
// fewbit convert DIR -o OUT --to bf16: a quantized checkpoint back to 16 or 32 bits.
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
  std::string target;
  std::string all_ones_zeros = "wrap";
  std::uint64_t max_shard_megabytes = 5000;
  const CLI::Option* shard_option = nullptr;  // whether it was given
};

Result<DequantizeOptions> library_options(const Options& options) {
  const std::optional<DType> dtype = dtype_from_name(options.target);
  if (dtype != DType::bf16 && dtype != DType::f16 && dtype != DType::f32) {
    return Error{ErrorCode::invalid_argument, "'" + options.target + "' is none of bf16, f16, f32",
                 "--to"};
  }
  DequantizeOptions out;
  out.dtype = *dtype;
  out.all_ones_zeros = options.all_ones_zeros == "above" ? AllOnesZeros::above : AllOnesZeros::wrap;
  out.max_shard_bytes = options.max_shard_megabytes * 1'000'000;
  // Of GGUF files those in parts are the rare ones.
  if (options.shard_option->count() > 0) out.max_part_bytes = out.max_shard_bytes;
  return out;
}

// What to open: of parts the first.
std::string written(const Options& options, const DequantizeReport& report) {
  return report.gguf_files.empty() ? options.output : report.gguf_files.front().string();
}

std::string more_parts_text(const DequantizeReport& report) {
  if (report.gguf_files.size() < 2) return "";
  return fmt::format(" and {} after it", counted(report.gguf_files.size() - 1, "part"));
}

Json report_json(const Options& options, const DequantizeReport& report) {
  Json out;
  out.set("output", written(options, report));
  out.set("to", options.target);
  out.set("decoded_tensors", report.decoded_tensors);
  out.set("kept_tensors", report.kept_tensors);
  out.set("inexact_values", report.inexact_values);
  out.set("erased_values", report.erased_values);
  out.set("all_ones_zeros", report.all_ones_zeros);
  out.set("source_bytes", report.source_bytes);
  out.set("output_bytes", report.output_bytes);
  if (report.gguf_files.empty()) return out;
  std::vector<std::string> files;
  for (const auto& file : report.gguf_files) files.push_back(file.string());
  out.set("files", list_json(files));
  return out;
}

void print_report(const Options& options, const DequantizeReport& report) {
  print_out("wrote {}{}\n  {} decoded to {}, {} kept\n  {} -> {}\n", written(options, report),
            more_parts_text(report), counted(report.decoded_tensors, "weight tensor"),
            options.target, counted(report.kept_tensors, "other"), bytes_text(report.source_bytes),
            bytes_text(report.output_bytes));
  print_out("  {} had to be rounded to {}{}\n", counted(report.inexact_values, "value"),
            options.target,
            report.inexact_values > 0 && options.target != "f32" ? "; --to f32 is nearer" : "");
  if (report.erased_values > 0) {
    print_out("  too small for {}, so that they became 0: {}\n", options.target,
              counted(report.erased_values, "value"));
  }
  if (report.all_ones_zeros > 0) {
    print_out("  all ones, read as {1}: {0}; --all-ones-zeros chooses\n",
              counted(report.all_ones_zeros, "zero point"),
              options.all_ones_zeros == "above" ? "2^bits" : "0");
  }
}

Result<int> run_convert(const Options& options) {
  FEWBIT_TRY(DequantizeOptions library, library_options(options));
  FEWBIT_TRY(const Checkpoint source, open_checkpoint(options.path));
  FEWBIT_TRY(const std::unique_ptr<Executor> pool, make_thread_pool(options.threads));
  clean_leftovers(options.output);
  ProgressBar bar("decoding", Unit::bytes);
  library.progress = bar.callback();
  FEWBIT_TRY(const DequantizeReport report,
             dequantize_checkpoint(source, options.output, library, *pool));
  if (options.json) {
    print_json(report_json(options, report));
    return exit_fine;
  }
  print_report(options, report);
  return exit_fine;
}

}  // namespace

void add_convert(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("convert", "Quantized checkpoint back to bf16, f16 or f32 weights");
  command->add_option("DIR", options->path, "Quantized checkpoint")->required()->check(not_empty);
  command
      ->add_option("-o,--output", options->output,
                   "New directory; of a GGUF source also a file X.gguf")
      ->required();
  command->add_option("--to", options->target, "bf16, f16 or f32")
      ->required()
      ->transform(one_of({"bf16", "f16", "f32"}));
  command
      ->add_option("--all-ones-zeros", options->all_ones_zeros,
                   "GPTQ zero points stored as -1: wrap to 0, as packers mean them, or above: "
                   "2^bits, as some kernels read them")
      ->transform(one_of({"wrap", "above"}));
  options->shard_option = command
                              ->add_option("--max-shard-mb", options->max_shard_megabytes,
                                           "Largest shard, in MB (X.gguf: one file without it)")
                              ->check(whole_number(1, 1'000'000));
  add_threads_option(*command, *options);
  add_json_option(*command, *options);
  command->footer("Example:\n  fewbit convert models/tiny-moe -o tiny-moe-bf16 --to bf16");
  set_body(*command, *options, exit_code, [options] { return run_convert(*options); });
}

}  // namespace fewbit::cli
