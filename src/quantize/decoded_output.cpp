// SPDX-License-Identifier: Apache-2.0
#include "quantize/decoded_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/gguf_source.hpp"
#include "quantize/quantize_files.hpp"

namespace fewbit {
namespace {

// What llama.cpp calls files of one type.
std::uint32_t file_type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 1;
    case DType::bf16:
      return 32;
    default:
      return 0;
  }
}

constexpr std::string_view file_type_key = "general.file_type";
// Of the blocks that are no longer there.
constexpr std::string_view version_key = "general.quantization_version";

std::vector<GgufPair> pairs_for(const GgufMetadata& metadata, DType dtype) {
  std::vector<GgufPair> pairs = gguf_pairs_of(metadata);
  std::erase_if(pairs, [](const GgufPair& pair) { return pair.key == version_key; });
  for (GgufPair& pair : pairs) {
    if (pair.key == file_type_key) pair = gguf_pair(pair.key, file_type_of(dtype));
  }
  return pairs;
}

Result<GgufWriter> create_gguf(const Checkpoint& source, const std::filesystem::path& output,
                               const std::vector<TensorSpec>& outputs,
                               const DequantizeOptions& options) {
  const GgufMetadata* metadata = source.gguf_metadata();
  if (metadata == nullptr) {
    return Error{
        ErrorCode::unsupported,
        "a GGUF file has names, sizes and a tokenizer of its own, which only a GGUF source "
        "tells; expected a folder",
        output.string()};
  }
  std::vector<GgufTensorSpec> specs;
  specs.reserve(outputs.size());
  for (const TensorSpec& spec : outputs) {
    const TensorInfo* kept = source.find(spec.name);
    const bool same = kept != nullptr && kept->dtype == spec.dtype && kept->shape == spec.shape;
    FEWBIT_TRY(GgufTensorSpec made, same ? gguf_spec_of(*kept) : gguf_spec_of(spec));
    specs.push_back(std::move(made));
  }
  GgufWriterOptions writer;
  writer.alignment = gguf_alignment_of(*metadata);
  writer.max_part_bytes = options.max_part_bytes;
  return GgufWriter::create(output, pairs_for(*metadata, options.dtype), specs, writer);
}

Result<void> read_back(const std::filesystem::path& file, const std::vector<TensorSpec>& outputs) {
  FEWBIT_TRY(const Checkpoint written, Checkpoint::open(file));
  for (const TensorSpec& spec : outputs) {
    const TensorInfo* info = written.find(spec.name);
    if (info != nullptr && info->dtype == spec.dtype && info->shape == spec.shape) continue;
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} was written as {} {}, expected {} {}", spec.name,
                             info == nullptr ? "nothing" : stored_type_name(*info),
                             info == nullptr ? "" : shape_text(info->shape), dtype_name(spec.dtype),
                             shape_text(spec.shape)),
                 file.string()};
  }
  return {};
}

}  // namespace

DecodedOutput::DecodedOutput(std::vector<TensorSpec> outputs, Writer writer)
    : outputs_(std::move(outputs)), writer_(std::move(writer)) {}

Result<DecodedOutput> DecodedOutput::create(const Checkpoint& source,
                                            const std::filesystem::path& output,
                                            const std::vector<TensorSpec>& outputs,
                                            const DequantizeOptions& options) {
  if (output.extension() == ".gguf") {
    FEWBIT_TRY(GgufWriter writer, create_gguf(source, output, outputs, options));
    return DecodedOutput(outputs, std::move(writer));
  }
  WriterOptions writer_options;
  writer_options.max_shard_bytes = options.max_shard_bytes;
  FEWBIT_TRY(CheckpointWriter writer, CheckpointWriter::create(output, outputs, writer_options));
  return DecodedOutput(outputs, std::move(writer));
}

Result<void> DecodedOutput::write(std::string_view name, std::span<const std::byte> bytes,
                                  std::uint64_t offset) {
  return std::visit([&](auto& writer) { return writer.write(name, bytes, offset); }, writer_);
}

Result<void> DecodedOutput::finish(const Checkpoint& source, const DequantizeOptions& options) {
  if (auto* gguf = std::get_if<GgufWriter>(&writer_)) {
    FEWBIT_TRY(gguf->finish());
    return read_back(gguf->files().front(), outputs_);
  }
  auto& folder = std::get<CheckpointWriter>(writer_);
  FEWBIT_TRY(write_dequantized_files(source, options.dtype, folder));
  return folder.finish();
}

std::vector<std::filesystem::path> DecodedOutput::gguf_files() const {
  const auto* gguf = std::get_if<GgufWriter>(&writer_);
  return gguf == nullptr ? std::vector<std::filesystem::path>() : gguf->files();
}

}  // namespace fewbit
