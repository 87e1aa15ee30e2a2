// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize_files.hpp"

#include <filesystem>

#include "checkpoint/json.hpp"
#include "checkpoint/side_files.hpp"
#include "quantize/nvfp4.hpp"
#include "scheme/kept_files.hpp"
#include "scheme/plain_config.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

// Without scales of activations. Plain "NVFP4" has them, and loaders read them unasked.
constexpr const char* weights_alone = "W4A16_NVFP4";

Json producer() {
  Json out;
  out.set("name", "fewbit");
  out.set("version", FEWBIT_VERSION);
  return out;
}

Json names(const std::vector<std::string>& list) {
  Json::Array out;
  for (const std::string& name : list) out.emplace_back(name);
  return Json(std::move(out));
}

Json config_block(const QuantizePlan& plan) {
  Json out;
  out.set("quant_method", "modelopt");
  out.set("quant_algo", weights_alone);
  out.set("group_size", std::int64_t{nvfp4_group_size});
  out.set("ignore", names(plan.ignored));
  out.set("producer", producer());
  return out;
}

Json hf_quant_config(const QuantizePlan& plan) {
  Json quantization;
  quantization.set("quant_algo", weights_alone);
  quantization.set("kv_cache_quant_algo", nullptr);
  quantization.set("group_size", std::int64_t{nvfp4_group_size});
  quantization.set("exclude_modules", names(plan.ignored));
  Json out;
  out.set("producer", producer());
  out.set("quantization", std::move(quantization));
  return out;
}

// Configs are written anew, or hold for the old weights only, as model cards do.
bool describes_old_weights(const fs::path& file) {
  return is_config_file(file) || file.filename() == "README.md";
}

Result<void> copy_side_files(const Checkpoint& source, CheckpointWriter& writer) {
  FEWBIT_TRY(const std::vector<fs::path> files, side_files_with(source.directory(), is_kept_file));
  for (const fs::path& file : files) {
    if (!describes_old_weights(file)) FEWBIT_TRY(writer.copy_file(file));
  }
  return {};
}

Result<Json> read_config(const Checkpoint& source) {
  FEWBIT_TRY(const std::shared_ptr<const Json> config, source.json_file("config.json"));
  if (config == nullptr) return Json(Json::Object{});
  if (config->is_object()) return *config;
  return Error{ErrorCode::corrupt, std::string("found ") + config->kind() + ", expected an object",
               (source.directory() / "config.json").string()};
}

}  // namespace

Result<void> write_quantized_files(const Checkpoint& source, const QuantizePlan& plan,
                                   CheckpointWriter& writer) {
  FEWBIT_TRY(Json config, read_config(source));
  config.set("quantization_config", config_block(plan));
  FEWBIT_TRY(writer.write_file("config.json", config.dump(2) + "\n"));
  FEWBIT_TRY(writer.write_file("hf_quant_config.json", hf_quant_config(plan).dump(2) + "\n"));
  return copy_side_files(source, writer);
}

Result<void> write_dequantized_files(const Checkpoint& source, DType dtype,
                                     CheckpointWriter& writer) {
  // Files beside a GGUF file are not its own.
  if (source.gguf_metadata() != nullptr) return {};
  FEWBIT_TRY(const Json config, read_config(source));
  Json updated = without_quantization(config);
  const char* name = dtype == DType::bf16  ? "bfloat16"
                     : dtype == DType::f16 ? "float16"
                                           : "float32";
  if (updated.find("torch_dtype") != nullptr) updated.set("torch_dtype", name);
  if (updated.find("dtype") != nullptr) updated.set("dtype", name);
  FEWBIT_TRY(writer.write_file("config.json", updated.dump(2) + "\n"));
  return copy_side_files(source, writer);
}

}  // namespace fewbit
