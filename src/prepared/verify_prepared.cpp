// SPDX-License-Identifier: Apache-2.0
// A prepared model against its own hashes, and against its source.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>
#include <utility>

#include "canonical/layer_experts.hpp"
#include "fewbit/prepare.hpp"
#include "prepared/content_hash.hpp"
#include "prepared/expert_slice.hpp"
#include "prepared/layer_file.hpp"
#include "prepared/manifest.hpp"
#include "prepared/source_files.hpp"
#include "select/backend.hpp"
#include "select/prepare_moe.hpp"

namespace fewbit {
namespace {

// Tasks side by side until one fails; the caller's thread reports progress.
class Tasks {
 public:
  Tasks(const ProgressFn& progress, std::uint64_t total) : progress_(progress), total_(total) {}

  template <class Task>
  Result<void> run(Executor& executor, std::size_t count, const Task& task) {
    std::atomic<std::size_t> next = 0;
    parallel_for(executor, std::max(executor.threads(), 1), [&](int worker) {
      while (!stopped_) {
        const std::size_t i = next.fetch_add(1);
        if (i >= count) return;
        const Result<void> done = task(i, worker);
        if (!done) fail(done.error());
      }
    });
    if (failure_) return *failure_;
    return {};
  }

  // False: stop.
  bool add(std::uint64_t bytes, int worker) {
    done_ += bytes;
    if (worker == 0 && progress_ && !progress_(std::min(done_.load(), total_), total_)) {
      fail({ErrorCode::cancelled, fmt::format("stopped after {} of {} bytes", done_.load(), total_),
            ""});
    }
    return !stopped_;
  }
  std::uint64_t done() const { return done_; }

 private:
  void fail(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = error;
    stopped_ = true;
  }

  const ProgressFn& progress_;
  std::uint64_t total_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards failure_
  std::optional<Error> failure_;
};

Error differs(const std::string& where, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), where};
}

Result<void> compare_part(const char* name, const Tensor& prepared, const Tensor& source,
                          const std::string& where) {
  const auto a = prepared.view.bytes;
  const auto b = source.view.bytes;
  const auto at = std::ranges::mismatch(a, b);
  if (at.in1 == a.end() && at.in2 == b.end()) return {};
  return differs(where, fmt::format("{} differ from the source at byte {} of {} (source {})", name,
                                    at.in1 - a.begin(), a.size(), b.size()));
}

Result<void> compare_matrix(const QuantizedTensor& prepared, const QuantizedTensor& source,
                            const std::string& where) {
  FEWBIT_TRY(compare_part("codes", prepared.codes, source.codes, where));
  FEWBIT_TRY(compare_part("scales", prepared.scales, source.scales, where));
  FEWBIT_TRY(compare_part("zero points", prepared.zero_points, source.zero_points, where));
  FEWBIT_TRY(compare_part("offsets", prepared.offsets, source.offsets, where));
  FEWBIT_TRY(compare_part("g_idx", prepared.g_idx, source.g_idx, where));
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  if (bits(prepared.global_scale) == bits(source.global_scale)) return {};
  return differs(where, fmt::format("global scale is {}, the source's {}", prepared.global_scale,
                                    source.global_scale));
}

// Layouts that can't be undone are made again and compared.
Result<void> compare_packed(const Backend& backend, const PreparedLayerInfo& layer,
                            const ExpertWeights& source, ConstExpertSpans shares,
                            const std::string& where) {
  const MoePlan& plan = layer.plan;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::span<std::byte>> again;
  for (const PlannedBuffer& buffer : plan.buffers) {
    const bool verbatim = buffer.use == BufferUse::verbatim;
    again.emplace_back(memory.emplace_back(verbatim ? 0 : buffer.expert_bytes));
  }
  FEWBIT_TRY(backend.pack_expert(layer.problem, plan, source, again));
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    std::span<const std::byte> want = again[i];
    if (plan.buffers[i].use == BufferUse::verbatim) {
      FEWBIT_TRY(const Tensor part, verbatim_share(plan.buffers[i], source, where));
      want = part.view.bytes;
    }
    if (!std::ranges::equal(want, shares[i])) {
      return differs(where, fmt::format("buffer {} differs from the source packed again",
                                        plan.buffers[i].name));
    }
  }
  return {};
}

// One layer of the prepared model beside the same layer of the source.
struct LayerPair {
  const PreparedLayerInfo* info = nullptr;
  const Backend* backend = nullptr;
  LayerExperts experts;
  ExpertSlice slice;
  PreparedMemory memory;
};

Result<LayerPair> pair_layer(const std::filesystem::path& folder, const PreparedLayerInfo& info,
                             const Checkpoint& source, const Identified& identified,
                             const PrepareSplit& split) {
  LayerPair pair;
  pair.info = &info;
  pair.backend = find_backend(info.backend);
  if (pair.backend == nullptr) {
    return Error{ErrorCode::unsupported, "prepared for the unknown backend " + info.backend,
                 info.problem.where};
  }
  FEWBIT_TRY(pair.experts, LayerExperts::find(identified, info.layer));
  FEWBIT_TRY(const ExpertWeights first, pair.experts.read(source, 0));
  FEWBIT_TRY(pair.slice, plan_slice(first, pair.experts.count(), split, info.problem.where));
  if (pair.slice.experts != info.plan.experts ||
      pair.slice.features != info.problem.intermediate_size) {
    return differs(
        info.problem.where,
        fmt::format("{} experts of {} features, the source gives {} of {}", info.plan.experts,
                    info.problem.intermediate_size, pair.slice.experts, pair.slice.features));
  }
  FEWBIT_TRY(const auto file, MappedFile::open(folder / info.file));
  FEWBIT_TRY(pair.memory, map_layer(info, file));
  return pair;
}

Result<void> compare_expert(const LayerPair& pair, std::size_t e, const Checkpoint& source) {
  const std::int64_t number = pair.slice.first_expert + static_cast<std::int64_t>(e);
  const std::string where = fmt::format("{} expert {}", pair.info->problem.where, number);
  FEWBIT_TRY(const ExpertWeights whole, pair.experts.read(source, number));
  FEWBIT_TRY(const ExpertWeights want, slice_expert(whole, pair.slice));
  const ConstExpertSpans shares = pair.memory.experts[e];
  if (pair.backend->unpack_expert == nullptr) {
    return compare_packed(*pair.backend, *pair.info, want, shares, where);
  }
  FEWBIT_TRY(const ExpertWeights got,
             pair.backend->unpack_expert(pair.info->problem, pair.info->plan, shares));
  if (got.gate.has_value() != want.gate.has_value()) return differs(where, "gate is missing");
  if (want.gate) FEWBIT_TRY(compare_matrix(*got.gate, *want.gate, where + " gate"));
  FEWBIT_TRY(compare_matrix(got.up, want.up, where + " up"));
  return compare_matrix(got.down, want.down, where + " down");
}

Result<void> compare_rest(const std::filesystem::path& folder, const Checkpoint& source) {
  FEWBIT_TRY(const Checkpoint rest, Checkpoint::open(folder));
  for (const TensorInfo& info : rest.tensors()) {
    const TensorInfo* other = source.find(info.name);
    if (other == nullptr || other->dtype != info.dtype || other->shape != info.shape) {
      return differs(info.name, "not in the source with this type and shape");
    }
    FEWBIT_TRY(compare_part("bytes", rest.tensor(info), source.tensor(*other), info.name));
    rest.release(info);
    source.release(*other);
  }
  return {};
}

Result<std::int64_t> compare_source(const std::filesystem::path& folder,
                                    const PreparedManifest& manifest, const Checkpoint& source,
                                    Tasks& tasks, Executor& executor) {
  FEWBIT_TRY(const Identified identified, identify(source));
  FEWBIT_TRY(const std::vector<SourceFile> files, source_files(source));
  const std::string hash = source_hash(files);
  if (hash != manifest.source_hash) {
    return differs(source.directory().string(),
                   fmt::format("not the source: its files have hash {}, the prepared model was "
                               "made from {}",
                               hash, manifest.source_hash));
  }
  FEWBIT_TRY(compare_rest(folder, source));
  std::int64_t experts = 0;
  for (const PreparedLayerInfo& info : manifest.layers) {
    FEWBIT_TRY(const LayerPair pair, pair_layer(folder, info, source, identified, manifest.split));
    const std::uint64_t each = pair.memory.mapped_bytes / pair.memory.experts.size();
    FEWBIT_TRY(tasks.run(executor, pair.memory.experts.size(),
                         [&](std::size_t e, int worker) -> Result<void> {
                           FEWBIT_TRY(compare_expert(pair, e, source));
                           tasks.add(each, worker);
                           return {};
                         }));
    experts += info.plan.experts;
  }
  return experts;
}

}  // namespace

Result<VerifyReport> verify_prepared(const std::filesystem::path& folder, const Checkpoint* source,
                                     const ProgressFn& progress, Executor& executor) {
  FEWBIT_TRY(const PreparedModel model, PreparedModel::open(folder));
  const PreparedManifest& manifest = model.manifest();
  VerifyReport report;
  report.files = std::ssize(manifest.files);
  for (const PreparedFile& file : manifest.files) report.bytes += file.bytes;
  Tasks tasks(progress, source != nullptr ? 2 * report.bytes : report.bytes);
  FEWBIT_TRY(
      tasks.run(executor, manifest.files.size(), [&](std::size_t i, int worker) -> Result<void> {
        const PreparedFile& file = manifest.files[i];
        FEWBIT_TRY(const std::string hash, hash_file(folder / file.name, [&](std::uint64_t bytes) {
                     return tasks.add(bytes, worker);
                   }));
        if (hash == file.hash) return {};
        return Error{ErrorCode::corrupt,
                     fmt::format("content hash is {}, {} says {}", hash, manifest_name, file.hash),
                     (folder / file.name).string()};
      }));
  if (source != nullptr) {
    FEWBIT_TRY(report.experts, compare_source(folder, manifest, *source, tasks, executor));
  }
  return report;
}

}  // namespace fewbit
