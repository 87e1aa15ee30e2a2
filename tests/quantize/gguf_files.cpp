// SPDX-License-Identifier: Apache-2.0
// Used by python_gguf.py:
//   gguf_files decode IN OUT          all tensors of IN, by name, as f32 one after the other
//   gguf_files encode IN OUT BYTES    each f32 tensor of IN in the type that its name begins with
//                                     ("Q4_0.x"), with the pairs of IN; parts of at most BYTES
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "canonical/gguf_blocks.hpp"
#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/gguf_writer.hpp"
#include "fewbit/checkpoint.hpp"
#include "quantize/gguf_encode.hpp"

namespace {

using fewbit::Checkpoint;
using fewbit::Error;
using fewbit::ErrorCode;
using fewbit::Result;
using fewbit::TensorInfo;

Result<std::vector<float>> decoded(const Checkpoint& checkpoint, const TensorInfo& info) {
  const auto* type =
      info.blocks ? fewbit::find_gguf_type(info.blocks->ggml_type, info.blocks->block_elements)
                  : nullptr;
  for (const fewbit::GgufType& plain : fewbit::gguf_types()) {
    if (type == nullptr && plain.dtype == info.dtype) type = &plain;
  }
  if (type == nullptr) return Error{ErrorCode::unsupported, "unknown type", info.name};
  const auto& shape = info.blocks ? info.blocks->shape : info.shape;
  FEWBIT_TRY(const std::int64_t elements, fewbit::shape_elements(shape));
  std::vector<float> values(static_cast<std::size_t>(elements));
  FEWBIT_TRY(fewbit::decode_gguf_blocks(*type, checkpoint.tensor(info).view.bytes, values));
  return values;
}

Result<void> decode(const std::string& in, const std::string& out) {
  FEWBIT_TRY(const auto checkpoint, Checkpoint::open(in));
  std::ofstream file(out, std::ios::binary);
  for (const TensorInfo& info : checkpoint.tensors()) {
    FEWBIT_TRY(const auto values, decoded(checkpoint, info));
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }
  file.close();
  if (!file) return Error{ErrorCode::io, "can't be written", out};
  return {};
}

Result<void> encode(const std::string& in, const std::string& out, std::uint64_t part_bytes) {
  FEWBIT_TRY(const auto checkpoint, Checkpoint::open(in));
  std::vector<fewbit::GgufPair> pairs;
  for (const auto& entry : checkpoint.gguf_metadata()->entries()) {
    pairs.push_back(fewbit::gguf_copy(std::string(entry.key), entry.value));
  }
  std::vector<fewbit::GgufTensorSpec> specs;
  for (const TensorInfo& info : checkpoint.tensors()) {
    const auto* type = fewbit::find_gguf_type(info.name.substr(0, info.name.find('.')));
    if (type == nullptr) return Error{ErrorCode::not_found, "no such type", info.name};
    specs.push_back({info.name, *type, info.shape});
  }
  fewbit::GgufWriterOptions options;
  options.max_part_bytes = part_bytes;
  FEWBIT_TRY(auto writer, fewbit::GgufWriter::create(out, pairs, specs, options));
  for (const fewbit::GgufTensorSpec& spec : specs) {
    FEWBIT_TRY(const auto values, decoded(checkpoint, *checkpoint.find(spec.name)));
    std::vector<std::byte> blocks(values.size() / static_cast<std::size_t>(spec.type.elements) *
                                  static_cast<std::size_t>(spec.type.bytes));
    FEWBIT_TRY(fewbit::encode_gguf_blocks(spec.type, values, blocks));
    FEWBIT_TRY(writer.write(spec.name, blocks));
  }
  return writer.finish();
}

Result<void> run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 4 && arguments[1] == "decode") return decode(arguments[2], arguments[3]);
  if (arguments.size() == 5 && arguments[1] == "encode") {
    return encode(arguments[2], arguments[3], std::strtoull(arguments[4].c_str(), nullptr, 10));
  }
  return Error{ErrorCode::invalid_argument, "wrong arguments", ""};
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run({argv, argv + argc});
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
