// SPDX-License-Identifier: Apache-2.0
// write_fixed_set FOLDER [READ_FOLDER]: writes checkpoints that python_roundtrip.py loads with the
// reference library, and checks one that it wrote. Byte i of tensor number t holds (7 i + t) mod
// 256, except BOOL: (i + t) mod 2.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "fewbit/checkpoint.hpp"

namespace {

using fewbit::DType;

std::vector<fewbit::TensorSpec> fixed_set() {
  return {
      {"layer.f64", DType::f64, {2, 3}},
      {"layer.f32", DType::f32, {3, 5}},
      {"layer.f16", DType::f16, {7}},
      {"layer.bf16", DType::bf16, {2, 2, 3}},
      {"layer.f8_e4m3", DType::f8_e4m3, {4, 4}},
      {"layer.f8_e5m2", DType::f8_e5m2, {5}},
      {"layer.f8_e8m0", DType::f8_e8m0, {3}},
      {"layer.f4", DType::f4_e2m1, {4, 6}},
      {"layer.bool", DType::boolean, {9}},
      {"layer.i64", DType::i64, {2}},
      {"layer.u64", DType::u64, {2}},
      {"layer.i32", DType::i32, {2, 2}},
      {"layer.u32", DType::u32, {3}},
      {"layer.i16", DType::i16, {3}},
      {"layer.u16", DType::u16, {5}},
      {"layer.i8", DType::i8, {3}},
      {"layer.u8", DType::u8, {11}},
      {"scalar", DType::f32, {}},
      {"empty", DType::bf16, {0, 4}},
      {"n\xc3\xa4me \"x\"\t", DType::u8, {2}},
  };
}

std::vector<std::byte> fixed_bytes(const fewbit::TensorSpec& spec, std::size_t number,
                                   std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = spec.dtype == DType::boolean ? std::byte((i + number) % 2)
                                            : std::byte((7 * i + number) % 256);
  }
  return bytes;
}

fewbit::Result<void> write_set(const std::string& folder, std::uint64_t max_shard_bytes) {
  const auto specs = fixed_set();
  fewbit::WriterOptions options;
  options.max_shard_bytes = max_shard_bytes;
  FEWBIT_TRY(auto writer, fewbit::CheckpointWriter::create(folder, specs, options));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    FEWBIT_TRY(const std::uint64_t size, fewbit::tensor_bytes(specs[i].dtype, specs[i].shape));
    FEWBIT_TRY(writer.write(specs[i].name, fixed_bytes(specs[i], i, size)));
  }
  return writer.finish();
}

// The set as another writer stored it; it may hold any part of it, but something.
fewbit::Result<void> check_set(const std::string& path) {
  FEWBIT_TRY(const auto checkpoint, fewbit::Checkpoint::open(path));
  const auto specs = fixed_set();
  std::size_t found = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const fewbit::TensorInfo* info = checkpoint.find(specs[i].name);
    if (info == nullptr) continue;
    ++found;
    const auto view = checkpoint.tensor(*info).view;
    const auto expected = fixed_bytes(specs[i], i, view.bytes.size());
    const bool same = view.dtype == specs[i].dtype && view.shape == specs[i].shape &&
                      std::equal(expected.begin(), expected.end(), view.bytes.begin());
    if (!same) return fewbit::Error{fewbit::ErrorCode::inconsistent, "differs", specs[i].name};
  }
  std::printf("%zu\n", found);
  return {};
}

fewbit::Result<void> run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2) {
    FEWBIT_TRY(write_set(arguments[1] + "/single", std::uint64_t{1} << 30));
    return write_set(arguments[1] + "/sharded", 64);
  }
  if (arguments.size() == 3) return check_set(arguments[2]);
  return fewbit::Error{fewbit::ErrorCode::invalid_argument, "wrong number of arguments", ""};
}

}  // namespace

int main(int argc, char** argv) {
  const auto done = run({argv, argv + argc});
  if (!done) std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return done ? 0 : 1;
}
