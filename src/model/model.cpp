// SPDX-License-Identifier: Apache-2.0
// Loading of a model, and its forward pass in calls of at most max_tokens.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "fewbit/prepare.hpp"
#include "model/element.hpp"
#include "model/families/family.hpp"
#include "model/model_state.hpp"
#include "prepared/manifest.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/source_errors.hpp"
#include "scheme/unused_tensors.hpp"
#include "select/backend.hpp"

namespace fewbit {
namespace {

Result<void> check_options(const ModelOptions& options) {
  const DType dtype = options.activation_dtype;
  if (dtype != DType::bf16 && dtype != DType::f32) {
    return Error{ErrorCode::unsupported,
                 fmt::format("activation dtype {}, expected bf16 or f32", dtype_name(dtype)), ""};
  }
  if (options.max_tokens < 1) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("max_tokens is {}, expected at least 1", options.max_tokens), ""};
  }
  return {};
}

// Layouts of other engines' kernels are written for those engines alone.
Result<void> check_runs_here(const PreparedModel& model, const std::filesystem::path& path) {
  for (const PreparedLayerInfo& layer : model.manifest().layers) {
    const Backend* backend = find_backend(layer.backend);
    if (backend == nullptr || backend->runs_here()) continue;
    std::string own;
    for (const Backend* one : all_backends()) {
      own += (own.empty() ? "" : ", ") + std::string(one->name);
    }
    return Error{ErrorCode::unsupported,
                 fmt::format("this folder was prepared for {} of {}, which fewbit itself does not "
                             "run; take the checkpoint that it was made from, or prepare that for "
                             "one of fewbit's own backends: {}",
                             backend->name, engine_name(backend->engine), own),
                 path.string()};
  }
  return {};
}

// A config beside it changes nothing: a GGUF file has other names for the rest of the model.
Result<void> check_container(const Checkpoint& checkpoint, const std::filesystem::path& path) {
  if (is_shard(checkpoint)) {
    return Error{ErrorCode::unsupported,
                 "one shard of a model, which does not run alone; name its folder or its index",
                 path.string()};
  }
  if (checkpoint.gguf_metadata() == nullptr) return {};
  return Error{ErrorCode::unsupported,
               "whole models run from safetensors, this one is GGUF; prepare takes its experts",
               path.string()};
}

// The experts of a prepared model; nullptr for a checkpoint.
Result<std::shared_ptr<const PreparedModel>> open_prepared(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    if (!is_prepared(path.parent_path())) return std::shared_ptr<const PreparedModel>();
    return Error{ErrorCode::unsupported, "a file of a prepared model; name its folder",
                 path.string()};
  }
  if (!is_prepared(path)) return std::shared_ptr<const PreparedModel>();
  FEWBIT_TRY(PreparedModel model, PreparedModel::open(path));
  FEWBIT_TRY(check_runs_here(model, path));
  const PrepareSplit split = model.split();
  if (split.whole()) return std::make_shared<const PreparedModel>(std::move(model));
  return Error{ErrorCode::unsupported,
               fmt::format("this is rank {} of {} (tensor {}, expert {}): a slice of the experts "
                           "can't answer alone",
                           split.rank, split.tensor_ranks * split.expert_ranks, split.tensor_ranks,
                           split.expert_ranks),
               path.string()};
}

// None of a prepared model, which holds no more than the rest of its source.
Result<std::vector<Finding>> source_warnings(const Checkpoint& checkpoint,
                                             const Identified& identified,
                                             const PreparedModel* prepared,
                                             const ProgressFn& progress) {
  if (prepared != nullptr) return std::vector<Finding>();
  const std::uint64_t bytes = checkpoint.total_bytes();
  const auto go_on = [&](std::uint64_t /*done*/, std::uint64_t /*total*/) {
    return !progress || progress(0, bytes);
  };
  FEWBIT_TRY(const std::vector<Finding> all, source_findings(checkpoint, identified, go_on));
  return problems_of(all);
}

Error bad_call(std::string what) { return Error{ErrorCode::invalid_argument, std::move(what), ""}; }

Result<void> check_ids(std::span<const std::int32_t> ids, std::int64_t vocab_size) {
  if (ids.empty()) return bad_call("no token ids");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return bad_call(fmt::format("token {} of {} has id {}, expected 0 to {}", i, ids.size(),
                                  ids[i], vocab_size - 1));
    }
  }
  return {};
}

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelConfig& Model::config() const { return state_->config; }
const ModelReport& Model::report() const { return state_->report; }
Executor& Model::executor() const { return *state_->executor; }

Result<Model> Model::load(const std::filesystem::path& path, const ModelOptions& options,
                          std::shared_ptr<Executor> executor) {
  const auto start = std::chrono::steady_clock::now();
  FEWBIT_TRY(check_options(options));
  FEWBIT_TRY(std::shared_ptr<const PreparedModel> prepared, open_prepared(path));
  FEWBIT_TRY(Checkpoint checkpoint, Checkpoint::open(path));
  FEWBIT_TRY(check_container(checkpoint, path));
  FEWBIT_TRY(ModelConfig config, read_model_config(checkpoint));
  FEWBIT_TRY(const Family* family,
             find_family(config, (checkpoint.directory() / "config.json").string()));
  FEWBIT_TRY(Identified identified, identify(checkpoint));
  FEWBIT_TRY(
      check_layer_count(identified, config, (checkpoint.directory() / "config.json").string()));
  FEWBIT_TRY(std::vector<Finding> warnings,
             source_warnings(checkpoint, identified, prepared.get(), options.progress));
  FEWBIT_TRY(DeviceInfo device, detect_cpu());
  FEWBIT_TRY(DeviceInfo expert_device, describe_device(options.device));
  ModelOptions bounded = options;
  bounded.max_tokens = std::min(options.max_tokens, config.max_positions);
  WeightReader reader({.checkpoint = std::move(checkpoint),
                       .identified = std::move(identified),
                       .config = config,
                       .options = bounded,
                       .device = std::move(device),
                       .expert_device = std::move(expert_device),
                       .executor = executor.get(),
                       .prepared = std::move(prepared)});
  FEWBIT_TRY(DecoderParts parts, family->load(reader));
  FEWBIT_TRY(reader.all_used());
  ModelReport report = reader.report();
  report.source_warnings = std::move(warnings);
  report.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return Model(std::make_unique<State>(State{.config = std::move(config),
                                             .report = std::move(report),
                                             .max_tokens = bounded.max_tokens,
                                             .executor = std::move(executor),
                                             .decoder = Decoder(std::move(parts))}));
}

Result<Sequence> Model::new_sequence(std::int64_t capacity) const {
  if (capacity < 1 || capacity > config().max_positions) {
    return bad_call(
        fmt::format("a sequence of {} positions, expected 1 to {} "
                    "(max_position_embeddings)",
                    capacity, config().max_positions));
  }
  const Decoder& decoder = state_->decoder;
  auto sequence = std::make_unique<Sequence::State>();
  sequence->model = state_.get();
  sequence->capacity = capacity;
  for (std::int64_t layer = 0; layer < decoder.layers(); ++layer) {
    FEWBIT_TRY(const std::uint64_t bytes, decoder.cache_bytes(layer, capacity));
    FEWBIT_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes));
    sequence->caches.push_back(buffer.span());
    sequence->buffers.push_back(std::move(buffer));
  }
  const std::int64_t most = std::min(state_->max_tokens, capacity);
  FEWBIT_TRY(const std::uint64_t bytes, decoder.workspace_bytes(most));
  FEWBIT_TRY(sequence->workspace, AlignedBuffer::allocate(bytes));
  return Sequence(std::move(sequence));
}

// Cuts ids into calls of the decoder. call(at, decoder_call) completes and makes the one that
// begins with ids[at].
template <class CallFn>
Result<void> Model::run(Sequence& sequence, std::span<const std::int32_t> ids,
                        CallFn&& call) const {
  Sequence::State& s = sequence.state();
  if (s.model != state_.get()) return bad_call("the sequence belongs to another model");
  FEWBIT_TRY(check_ids(ids, config().vocab_size));
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count > s.capacity - s.length) {
    return bad_call(
        fmt::format("{} tokens more than {} of at most {}", count, s.length, s.capacity));
  }
  for (std::size_t at = 0; at < ids.size();) {
    const std::size_t tokens = std::min(ids.size() - at, to_size(state_->max_tokens));
    Decoder::Call decoder_call;
    decoder_call.ids = ids.subspan(at, tokens);
    decoder_call.start = s.length;
    decoder_call.capacity = s.capacity;
    decoder_call.caches = s.caches;
    decoder_call.workspace = s.workspace.span();
    decoder_call.executor = state_->executor.get();
    FEWBIT_TRY(call(at, decoder_call));
    s.length += static_cast<std::int64_t>(tokens);
    at += tokens;
  }
  return {};
}

Result<std::vector<float>> Model::forward(Sequence& sequence, std::span<const std::int32_t> ids,
                                          Logits logits) const {
  const std::size_t vocab = to_size(config().vocab_size);
  std::vector<float> out(vocab * (logits == Logits::all ? ids.size() : 1));
  FEWBIT_TRY(run(sequence, ids, [&](std::size_t at, Decoder::Call& call) {
    if (logits == Logits::all) {
      call.logits = std::span(out).subspan(at * vocab, call.ids.size() * vocab);
    } else if (at + call.ids.size() == ids.size()) {
      call.logits = out;
    }
    return state_->decoder.run(call);
  }));
  return out;
}

Result<Model::Trace> Model::forward_traced(Sequence& sequence,
                                           std::span<const std::int32_t> ids) const {
  const std::size_t vocab = to_size(config().vocab_size);
  const std::size_t hidden = to_size(config().hidden_size);
  const Decoder& decoder = state_->decoder;
  Trace out;
  out.logits.resize(vocab * ids.size());
  out.hidden_states.assign(to_size(decoder.layers()) + 1, std::vector<float>(hidden * ids.size()));
  FEWBIT_TRY(run(sequence, ids, [&](std::size_t at, Decoder::Call& call) {
    const std::size_t tokens = call.ids.size();
    call.logits = std::span(out.logits).subspan(at * vocab, tokens * vocab);
    call.trace = [&](std::int64_t index, std::span<const std::byte> states) {
      const auto to =
          std::span(out.hidden_states[to_size(index)]).subspan(at * hidden, tokens * hidden);
      with_element_type(decoder.dtype(), [&]<class T>(T) {
        const auto from = elements<T>(states);
        std::transform(from.begin(), from.end(), to.begin(), [](T x) { return element_value(x); });
      });
    };
    return decoder.run(call);
  }));
  return out;
}

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;
std::int64_t Sequence::length() const { return state_->length; }
std::int64_t Sequence::capacity() const { return state_->capacity; }
void Sequence::clear() { state_->length = 0; }

}  // namespace fewbit
