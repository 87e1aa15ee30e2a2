// SPDX-License-Identifier: Apache-2.0
// MXFP4 through the whole way from a file: written, identified, canonical, decoded.
#include <algorithm>

#include "checkpoint/scratch_folder.hpp"
#include "core/convert.hpp"
#include "fewbit/quantized.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

struct Part {
  std::string name;
  Tensor tensor;
};

Result<void> write_checkpoint(const std::filesystem::path& path, const std::vector<Part>& parts) {
  std::vector<TensorSpec> specs;
  for (const Part& part : parts) {
    specs.push_back({part.name, part.tensor.view.dtype, part.tensor.view.shape});
  }
  FEWBIT_TRY(CheckpointWriter writer, CheckpointWriter::create(path, specs));
  for (const Part& part : parts) {
    FEWBIT_TRY(writer.write(part.name, part.tensor.view.bytes));
  }
  return writer.finish();
}

// All values of the only module, expert after expert.
Result<std::vector<float>> decode(const std::vector<Part>& parts) {
  const ScratchFolder folder;
  FEWBIT_TRY(write_checkpoint(folder / "model", parts));
  FEWBIT_TRY(const Checkpoint checkpoint, Checkpoint::open(folder / "model"));
  FEWBIT_TRY(const Identified identified, identify(checkpoint));
  const Module& module = identified.modules.front();
  std::vector<float> values;
  for (std::int64_t e = 0; e < std::max<std::int64_t>(module.experts, 1); ++e) {
    FEWBIT_TRY(const QuantizedTensor matrix,
               canonicalize(checkpoint, module, module.experts > 0 ? e : -1));
    std::vector<float> rows(static_cast<std::size_t>(matrix.n * matrix.k));
    FEWBIT_TRY(dequantize_rows(matrix, 0, rows));
    values.insert(values.end(), rows.begin(), rows.end());
  }
  return values;
}

Result<Tensor> as_bf16(const std::vector<float>& values, const Shape& shape) {
  std::vector<std::byte> bytes(values.size() * 2);
  FEWBIT_TRY(convert_from_f32(values, DType::bf16, bytes));
  return tensor_of(DType::bf16, shape, bytes);
}

}  // namespace

Result<Outputs> dequant_mxfp4(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor weight, c.input("weight"));
  FEWBIT_TRY(const Tensor scale, c.input("scale"));
  FEWBIT_TRY(const std::vector<float> values,
             decode({{"layer.weight_packed", weight}, {"layer.weight_scale", scale}}));
  const Shape shape = {weight.view.shape[0], weight.view.shape[1] * 2};
  Outputs outputs;
  outputs["f32"] = tensor_of(DType::f32, shape, values);
  FEWBIT_TRY(outputs["bf16"], as_bf16(values, shape));
  return outputs;
}

Result<Outputs> dequant_mxfp4_gptoss(const GoldenCase& c) {
  FEWBIT_TRY(const Tensor blocks, c.input("blocks"));
  FEWBIT_TRY(const Tensor scales, c.input("scales"));
  const std::string name = "model.layers.0.mlp.experts.down_proj_";
  FEWBIT_TRY(const std::vector<float> values,
             decode({{name + "blocks", blocks}, {name + "scales", scales}}));
  const Shape& stored = blocks.view.shape;
  const Shape plain = {stored[0], stored[1], stored[2] * 32};
  // What transformers returns: each expert the other way round.
  std::vector<float> columns(values.size());
  const auto rows = static_cast<std::size_t>(plain[1]);
  const auto k = static_cast<std::size_t>(plain[2]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t expert = i / (rows * k);
    const std::size_t row = i / k % rows;
    columns[(expert * k + i % k) * rows + row] = values[i];
  }
  const Shape hf = {plain[0], plain[2], plain[1]};
  Outputs outputs;
  outputs["plain_f32"] = tensor_of(DType::f32, plain, values);
  outputs["hf_f32"] = tensor_of(DType::f32, hf, columns);
  FEWBIT_TRY(outputs["hf_bf16"], as_bf16(columns, hf));
  return outputs;
}

}  // namespace fewbit::golden
