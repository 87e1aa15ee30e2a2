// SPDX-License-Identifier: Apache-2.0
// Any configs over any small tensors: identified, validated, decoded. The input has four parts with
// a NUL byte between: config.json; another config, whose first byte chooses its file name; a line
// "name dtype dim,dim…" a tensor; bytes that are repeated to fill the tensors.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/raw_safetensors.hpp"
#include "checkpoint/safetensors_dtype.hpp"
#include "checkpoint/scratch_folder.hpp"
#include "core/text_file.hpp"
#include "fewbit/quantized.hpp"

namespace {

constexpr std::uint64_t max_data_bytes = 1U << 16U;
constexpr std::array<std::string_view, 3> config_names = {
    "hf_quant_config.json", "quantize_config.json", "quant_config.json"};

std::string_view take_until(std::string_view& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

// Empty when there is no such type, the shape is none, or there are too many bytes.
std::optional<std::uint64_t> bytes_of(std::string_view dtype, std::string_view dims) {
  const auto type = fewbit::dtype_from_safetensors(dtype);
  fewbit::Shape shape;
  while (!dims.empty()) {
    const auto dim = fewbit::parse_number<std::int64_t>(take_until(dims, ','));
    if (!dim || *dim < 0) return std::nullopt;
    shape.push_back(*dim);
  }
  if (!type) return std::nullopt;
  const auto bytes = fewbit::tensor_bytes(*type, shape);
  if (!bytes || *bytes > max_data_bytes) return std::nullopt;
  return *bytes;
}

std::string safetensors_file(std::string_view lines, std::string_view pattern) {
  std::string header;
  std::uint64_t size = 0;
  while (!lines.empty()) {
    std::string_view line = take_until(lines, '\n');
    const std::string_view name = take_until(line, ' ');
    const std::string_view dtype = take_until(line, ' ');
    const auto bytes = bytes_of(dtype, line);
    if (!bytes || size + *bytes > max_data_bytes || name.find_first_of("\"\\") != name.npos)
      continue;
    const std::string offsets =
        "[" + std::to_string(size) + "," + std::to_string(size + *bytes) + "]";
    header += (header.empty() ? "{" : ",") +
              fewbit::raw_entry(name, dtype, "[" + std::string(line) + "]", offsets);
    size += *bytes;
  }
  std::string data(size, '\x38');
  for (std::size_t i = 0; i < data.size() && !pattern.empty(); ++i) {
    data[i] = pattern[i % pattern.size()];
  }
  return fewbit::raw_safetensors(header.empty() ? "{}" : header + "}", data);
}

// What is decoded must decode whole.
void check_matrix(const fewbit::Checkpoint& checkpoint, const fewbit::Module& module,
                  std::int64_t expert) {
  const auto matrix = fewbit::canonicalize(checkpoint, module, expert);
  if (!matrix) return;
  if (!fewbit::check_quantized(*matrix)) std::abort();
  if (matrix->n == 0) return;
  std::vector<float> row(static_cast<std::size_t>(matrix->k));
  if (!fewbit::dequantize_rows(*matrix, 0, row)) std::abort();
  if (!fewbit::dequantize_rows(*matrix, matrix->n - 1, row)) std::abort();
}

// Codes never pass for plain values. Masks are nobody's codes: plain BOOL tensors, and bytes by
// name.
void check_plain(const fewbit::Checkpoint& checkpoint, const fewbit::Module& module) {
  if (module.scheme.quantized() || !module.unreadable.empty()) return;
  if (module.name.ends_with("mask") || module.name.ends_with("masked_bias")) return;
  const fewbit::TensorInfo* weight = checkpoint.find(module.part("weight"));
  if (weight != nullptr && weight->dtype != fewbit::DType::boolean && weight->shape.size() >= 2 &&
      fewbit::dtype_bits(weight->dtype) < 16) {
    std::abort();
  }
}

void check_folder(const fewbit::ScratchFolder& folder) {
  const auto checkpoint = fewbit::Checkpoint::open(folder.path());
  if (!checkpoint) return;
  (void)fewbit::read_model_config(*checkpoint);
  const auto identified = fewbit::identify(*checkpoint);
  if (!identified) return;
  (void)fewbit::validate(*checkpoint, *identified);
  for (const fewbit::Module& module : identified->modules) {
    check_plain(*checkpoint, module);
    check_matrix(*checkpoint, module, module.experts > 0 ? module.experts - 1 : -1);
  }
  for (int layer = 0; layer < 3; ++layer) {
    (void)fewbit::gather_moe(*checkpoint, *identified, layer);
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fewbit::ScratchFolder folder;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view config = take_until(input, '\0');
  std::string_view other = take_until(input, '\0');
  const std::string_view lines = take_until(input, '\0');
  for (const std::string_view name : config_names) std::filesystem::remove(folder / name);
  if (!other.empty()) {
    const auto choice = static_cast<unsigned char>(other.front()) % config_names.size();
    folder.write(config_names[choice], other.substr(1));
  }
  folder.write("config.json", config);
  folder.write("model.safetensors", safetensors_file(lines, input));
  check_folder(folder);
  return 0;
}
