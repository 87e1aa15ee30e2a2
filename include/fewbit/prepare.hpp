// SPDX-License-Identifier: Apache-2.0
// Prepared models: the experts as a backend's kernels read them, in files that are mapped.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/moe.hpp"
#include "fewbit/quantize.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

// Which slice of the experts: each expert's intermediate features are cut among `tensor_ranks` (on
// group boundaries; for other engines as their loaders
// cut: evenly, or padded to whole groups), whole experts among `expert_ranks`. rank = expert
// rank * tensor_ranks + tensor rank. Everything but the experts is whole in every slice.
struct PrepareSplit {
  int tensor_ranks = 1;
  int expert_ranks = 1;
  int rank = 0;

  bool whole() const { return tensor_ranks == 1 && expert_ranks == 1; }
  bool operator==(const PrepareSplit&) const = default;
};

struct PrepareOptions {
  std::string backend;               // forced; empty: as select_backend
  std::optional<DeviceInfo> device;  // that it is prepared for; empty: this machine
  // Of scales and biases too, where a layout has them so. Empty: for other engines the model's own
  // f16 or bf16 (dtype or torch_dtype of config.json), else bf16.
  std::optional<DType> activation_dtype;
  PrepareSplit split;
  // How tokens will reach the experts: kernels of other engines may need one or another.
  TokenExchange exchange = TokenExchange::none;
  bool restart = false;  // drop what an earlier run has left unfinished
  bool verify = false;   // as verify_prepared, before the output appears
  // Finished experts are noted at least this often; what was not noted is done again.
  std::chrono::milliseconds journal_interval{250};
  ProgressFn progress;           // in bytes of the source
  ProgressFn checking_progress;  // modules of the source, before anything is written
  ProgressFn verify_progress;    // in bytes of the output
};

struct VerifyReport {
  std::int64_t files = 0;
  std::int64_t experts = 0;  // unpacked and found equal to the source
  std::uint64_t bytes = 0;   // hashed
};

struct PrepareReport {
  std::string backend;                   // of the layers; "a, b" when they differ
  std::string layout;                    // "cpu_f4_lane16, cpu_f4_lane16_scales"
  DType activation_dtype = DType::bf16;  // that it is prepared for
  std::int64_t layers = 0;
  std::int64_t experts = 0;          // prepared, over all layers
  std::int64_t resumed_experts = 0;  // of them, by an earlier run
  // Experts and other tensors of an earlier run that were not as it had written them: done again.
  std::int64_t redone = 0;
  bool journal_alone = false;  // an earlier run's journal without its folder: all was done
  std::uint64_t source_bytes = 0;
  std::uint64_t output_bytes = 0;
  double packing_seconds = 0;             // from the mapped source to the written file
  double seconds = 0;                     // with hashes and flushing
  std::uint64_t packed_source_bytes = 0;  // read by this run
  std::optional<VerifyReport> verified;   // when asked for
  std::vector<Finding> source_warnings;   // what `fewbit check` warns of; they stop nothing
};

// Writes the folder `output`: prepared experts, everything else as in the source (in one file of
// the source's format, safetensors or GGUF), and fewbit_prepared.json with a hash of every file and
// of itself. Each expert goes from the mapped source straight into its final place; memory for one
// expert a thread, packed, and where its codes are not packed as they lie there one or two more.
// Works in "<output>.partial" with the journal "<output>.partial.journal", so that the same call
// goes on after any interruption and gives the same bytes: what an earlier run has finished is
// kept where it still has the hash that the journal notes; the output appears when it is complete
// (and verified). Nothing stays of a job that can't succeed: experts that can't be packed, a
// verification that fails.
//
// The source is checked first, as `fewbit check` does. A source file has changed when its size,
// its times of change (of content and of status) or the hash of its header are not what they were.
//
// Errors: inconsistent (errors in the source: the findings), invalid_argument (output exists or is
// the source; ranks that don't fit, with the legal ones; an unfinished output of other options or
// of a source that has changed, naming what differs; a side file whose name can't be kept),
// unsupported (no routed experts, backend, a layout that has no place for the weights, GGUF
// blocks without an exact form, an architecture of GGUF whose experts are not known), io (full
// disk, another run at work), cancelled, and those of gather_moe.
Result<PrepareReport> prepare_checkpoint(const Checkpoint& source,
                                         const std::filesystem::path& output,
                                         const PrepareOptions& options, Executor& executor);

// Whether a folder holds a prepared model.
bool is_prepared(const std::filesystem::path& folder);
// Content hash of every file; with a source also that every field of the manifest is what preparing
// that source gives, that every expert, unpacked, has the source's own codes and scales, and that
// all other tensors are the same. Errors: corrupt (file and both hashes), inconsistent (the field
// with both values; the expert and the part that differ).
Result<VerifyReport> verify_prepared(const std::filesystem::path& folder, const Checkpoint* source,
                                     const ProgressFn& progress, Executor& executor);

struct PreparedManifest;

// An open prepared model: the manifest has its own hash, every header and size was checked, no
// weight was read.
class PreparedModel {
 public:
  // Errors: not_found (no fewbit_prepared.json, a file is missing), corrupt (file and numbers),
  // unsupported (version).
  static Result<PreparedModel> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const;
  const PreparedManifest& manifest() const;
  PrepareSplit split() const;
  std::uint64_t bytes() const;      // of all prepared experts
  std::vector<int> layers() const;  // with routed experts, ascending

  struct Layer {
    MoeLayer experts;
    Selection selection;
  };
  // Runs from the mapped file. A backend other than the one it was prepared for may open it when
  // its plan is the same in every buffer. Of a slice it is that rank's share: its outputs are added
  // to the other tensor ranks'. Errors: not_found (layer), unsupported (no backend reads these
  // layouts on the device, with what is needed; a GPU that is only described; no code for it here).
  Result<Layer> layer(int number, DType activation_dtype, std::int64_t max_tokens,
                      const DeviceInfo& device, const SelectOptions& options) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace fewbit
