// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "checkpoint/json.hpp"
#include "quantize/nvfp4.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t largest_side_file = std::uintmax_t{64} << 20;

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
  out.set("quant_algo", "NVFP4");
  out.set("group_size", std::int64_t{nvfp4_group_size});
  out.set("ignore", names(plan.ignored));
  out.set("producer", producer());
  return out;
}

Json hf_quant_config(const QuantizePlan& plan) {
  Json quantization;
  quantization.set("quant_algo", "NVFP4");
  quantization.set("kv_cache_quant_algo", nullptr);
  quantization.set("group_size", std::int64_t{nvfp4_group_size});
  quantization.set("exclude_modules", names(plan.ignored));
  Json out;
  out.set("producer", producer());
  out.set("quantization", std::move(quantization));
  return out;
}

// Weights in any format, and what is written anew.
bool is_side_file(const fs::path& path) {
  constexpr std::array<std::string_view, 10> weights = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ckpt", ".npz"};
  const std::string name = path.filename().string();
  if (name == "config.json" || name == "hf_quant_config.json" || name.starts_with('.'))
    return false;
  if (name.ends_with(".index.json")) return false;
  return std::find(weights.begin(), weights.end(), path.extension().string()) == weights.end();
}

Result<void> copy_side_files(const Checkpoint& source, CheckpointWriter& writer) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(source.directory(), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (!it->is_regular_file(ignored) || !is_side_file(it->path())) continue;
    if (it->file_size(ignored) <= largest_side_file) files.push_back(it->path());
  }
  if (error) return Error{ErrorCode::io, error.message(), source.directory().string()};
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) FEWBIT_TRY(writer.copy_file(file));
  return {};
}

}  // namespace

Result<void> write_quantized_files(const Checkpoint& source, const QuantizePlan& plan,
                                   CheckpointWriter& writer) {
  FEWBIT_TRY(const std::shared_ptr<const Json> config, source.json_file("config.json"));
  if (config != nullptr && !config->is_object()) {
    return Error{ErrorCode::corrupt,
                 std::string("found ") + config->kind() + ", expected an object",
                 (source.directory() / "config.json").string()};
  }
  Json updated = config != nullptr ? *config : Json(Json::Object{});
  updated.set("quantization_config", config_block(plan));
  FEWBIT_TRY(writer.write_file("config.json", updated.dump(2) + "\n"));
  FEWBIT_TRY(writer.write_file("hf_quant_config.json", hf_quant_config(plan).dump(2) + "\n"));
  return copy_side_files(source, writer);
}

}  // namespace fewbit
