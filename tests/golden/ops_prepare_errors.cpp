// SPDX-License-Identifier: Apache-2.0
// The table of preparations that must fail: rows of what is wrong with two experts of hidden size
// 128 and intermediate size 64.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/checked.hpp"
#include "fewbit/executor.hpp"
#include "fewbit/layouts.hpp"
#include "golden/ops.hpp"
#include "golden/refusal.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit::golden {
namespace {

constexpr std::int64_t experts = 2;

// One row of the table and the memory of the tensors that it describes.
class Attempt {
 public:
  explicit Attempt(const Json& row)
      : function_(*row.find("function")->as_string()),
        what_(*row.find("what")->as_string()),
        kwargs_(*row.find("kwargs")) {
    hidden_ = number_after("hidden ", 128);
    intermediate_ = number_after("intermediate ", 64);
  }

  Result<void> run() {
    if (function_ == "prepare_nf3_moe_weights") return run_nf3();
    FEWBIT_TRY(const W4a16Input input, w4a16_input());
    if (function_.find("native") != std::string::npos) {
      const auto result = prepare_w4a16_native(input, UnevenColumns::refuse, serial_executor());
      return result ? Result<void>{} : result.error();
    }
    FEWBIT_TRY(const W4a16Plan plan, plan_w4a16(input));
    return run_packed(input, plan);
  }

 private:
  bool says(const char* text) const { return what_.find(text) != std::string::npos; }

  std::int64_t number_after(const char* word, std::int64_t otherwise) const {
    const std::size_t at = what_.find(word);
    if (at == std::string::npos) return otherwise;
    return std::atoll(what_.c_str() + at + std::strlen(word));
  }

  std::string text(const char* key, const char* otherwise) const {
    const Json* value = kwargs_.find(key);
    return value == nullptr ? otherwise : *value->as_string();
  }

  DType dtype() const {
    const std::string name = text("params_dtype", "torch.bfloat16");
    return name == "torch.float32"   ? DType::f32
           : name == "torch.float16" ? DType::f16
                                     : DType::bf16;
  }

  TensorView tensor(DType dtype, Shape shape, int fill = 0) {
    std::size_t bytes = static_cast<std::size_t>(dtype_bits(dtype)) / 8;
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    memory_.emplace_back(bytes, static_cast<std::byte>(fill));
    return {.dtype = dtype, .shape = std::move(shape), .bytes = memory_.back(), .device = {}};
  }

  TensorView floats(Shape shape, float value) {
    TensorView view = tensor(DType::f32, std::move(shape));
    for (std::size_t i = 0; i < memory_.back().size(); i += sizeof value) {
      std::memcpy(memory_.back().data() + i, &value, sizeof value);
    }
    return view;
  }

  W4a16Source source() const {
    if (function_.find("e8m0") != std::string::npos) return W4a16Source::fp4_e8m0_k32;
    return W4a16Source::modelopt_nvfp4;
  }

  W4a16Matrix matrix(const W4a16Input& input, Dims dims) {
    const std::int64_t group = w4a16_group_size(input.source);
    const bool e8m0 = input.source == W4a16Source::fp4_e8m0_k32;
    Dims grid{.n = dims.n, .k = ceil_div(dims.k, group)};
    if (!e8m0) grid = Swizzle128x4<8>::padded(grid);
    return {
        .codes = tensor(DType::u8, {experts, dims.n, dims.k / 2}),
        .block_scales = tensor(e8m0 ? DType::f8_e8m0 : DType::f8_e4m3, {experts, grid.n, grid.k}),
        .global_scales = floats({experts}, 1.0F)};
  }

  // What the row says is wrong with tensors; a view has no strides, so those of a strided one show
  // as memory of another size.
  void spoil(W4a16Input& input) {
    W4a16Matrix& w13 = input.w13;
    if (says("w13 dtype int8")) w13.codes.dtype = DType::i8;
    if (says("global scale fp16")) w13.global_scales = tensor(DType::f16, {experts});
    if (says("do not match a gated")) w13.codes = tensor(DType::u8, {experts, 64, 64});
    if (says("do not match relu2")) w13.codes = tensor(DType::u8, {experts, 128, 64});
    if (says("non-contiguous")) w13.codes.bytes = tensor(DType::u8, {experts, 128, 128}).bytes;
    if (says("block scale too short")) w13.block_scales = tensor(DType::f8_e4m3, {experts, 128, 2});
    if (says("scale columns wrong")) w13.block_scales = tensor(DType::u8, {experts, 128, 3});
    if (says("scale dtype int8")) w13.block_scales.dtype = DType::i8;
    if (says("2-D scales")) w13.block_scales = tensor(DType::u8, {128, 4});
    if (says("floor instead of ceil")) {
      input.w2.block_scales = tensor(DType::u8, {experts, 128, 1});
    }
  }

  Result<W4a16Input> w4a16_input() {
    W4a16Input input;
    input.source = source();
    if (kwargs_.find("source_format") != nullptr) {
      FEWBIT_TRY(input.source, w4a16_source_from_name(text("source_format", "")));
    }
    if (input.source == W4a16Source::fp4_e8m0_k32) {
      input.block_scale_storage = BlockScaleStorage::plain;
    }
    FEWBIT_TRY(input.gating, w4a16_gating(text("activation", "")));
    FEWBIT_TRY(input.w13_order, w13_order_from_name(text("w13_layout", "w13")));
    input.activation_dtype = dtype();
    input.hidden_size = hidden_;
    input.intermediate_size = intermediate_;
    const std::int64_t halves = input.gating == Gating::gated ? 2 : 1;
    input.w13 = matrix(input, {.n = halves * intermediate_, .k = hidden_});
    input.w2 = matrix(input, {.n = hidden_, .k = intermediate_});
    spoil(input);
    return input;
  }

  Result<void> run_packed(const W4a16Input& input, const W4a16Plan& plan) {
    const auto output = [&](const W4a16MatrixPlan& p, std::vector<float>& globals) {
      globals.resize(experts);
      tensor(DType::u8, {p.tiles_bytes});
      const std::span<std::byte> tiles = memory_.back();
      tensor(DType::u8, {p.scales_bytes});
      return W4a16MatrixOutput{.tiles = tiles, .scales = memory_.back(), .global_scales = globals};
    };
    std::vector<float> w13_globals;
    std::vector<float> w2_globals;
    const W4a16Output out{.w13 = output(plan.w13, w13_globals), .w2 = output(plan.w2, w2_globals)};
    const auto report = prepare_w4a16(input, out, IsaLevel::generic, serial_executor());
    return report ? Result<void>{} : report.error();
  }

  Nf3Matrix nf3_matrix(Dims dims, const char* tile_key) {
    const bool float_codes = says("float codes");
    return {.codes = tensor(float_codes ? DType::f32 : DType::u8, {experts, dims.n, dims.k},
                            says("code 8") ? 8 : 0),
            .scales = floats({experts, dims.n, dims.k / 32}, says("scale 32") ? 32.0F : 1.0F),
            .tile_n = kwargs_.find(tile_key)->as_int64().value_or(0)};
  }

  Result<void> run_nf3() {
    Nf3Input input;
    input.hidden_size = hidden_;
    input.intermediate_size = intermediate_;
    input.activation_dtype = dtype();
    input.w13 = nf3_matrix({.n = 2 * intermediate_, .k = hidden_}, "fc1_tile_n");
    input.w2 = nf3_matrix({.n = hidden_, .k = intermediate_}, "fc2_tile_n");
    const auto result = prepare_nf3(input);
    return result ? Result<void>{} : result.error();
  }

  std::string function_;
  std::string what_;
  const Json& kwargs_;
  std::int64_t hidden_ = 0;
  std::int64_t intermediate_ = 0;
  std::vector<std::vector<std::byte>> memory_;
};

// The first that a message has is its cause.
constexpr Cause causes[] = {
    {"unsupported activation 'gelu'", "activation 'gelu'"},
    {"unsupported activation 'SiLU'", "activation 'SiLU'"},
    {"w13_layout must be one of", "w13 order '", "'w31' or 'gate_up'"},
    {"packed FP4 weights must be torch.uint8", "w13 codes: dtype i8, expected u8"},
    {"global scales must be torch.float32", "w13 global scales: dtype f16, expected f32"},
    {"expected w13_fp4 shape (2, 128, 64)", "w13 codes: shape", "expected [2, 128, 64]"},
    {"expected w13_fp4 shape (2, 64, 64)", "w13 codes: shape", "expected [2, 64, 64]"},
    {"activation dtype torch.float32", "activation dtype: f32"},
    {"multiples of 16,64; got 64,96", "w2 codes: n x k is", "multiples of 64 and 16"},
    {"multiples of 16,64", "w13 codes: n x k is", "multiples of 64 and 16"},
    {"requires contiguous packed weights", "w13 codes: holds 32768 bytes", "expected 16384"},
    {"is invalid for input of size 512", "w13 block scales: shape", "expected [2, 128, 8]"},
    {"'mxfp4_native' has been removed", "source format 'mxfp4_native'", "'fp4_e8m0_k32'"},
    {"source_format must be one of", "source format '", "'compressed_tensors'"},
    {"native W4A16 ModelOpt weights", "source format 'compressed_tensors' has no native form"},
    {"w13_e8m0_scale must have shape", "w13 block scales: shape", "expected [2, 128, 4]"},
    {"w2_e8m0_scale must have shape", "w2 block scales: shape", "expected [2, 128, 2]"},
    {"w13_e8m0_scale must be [E, N", "w13 block scales: shape", "expected [2, 128, 4]"},
    {"w13_e8m0_scale must be torch.uint8", "w13 block scales: dtype i8, expected f8_e8m0"},
    // The rows of w13 are no multiple of 64 either, and come first here.
    {"w2_e8m0_scale requires K divisible by 32, got 48", "w13 codes: n x k is 96 x 128",
     "multiples of 64 and 16", false},
    {"w2_e8m0_scale compact E8M0 K-tail", "w2 codes: k is", "a multiple of 8"},
    {"w13_e8m0_scale requires K divisible by 32", "w13 codes: k is", "a multiple of 32"},
    {"output_size_n must be a multiple of 64", "block scales: n is 96", "a multiple of 64"},
    {"NF3 scales must be < 32", "w13 scales:", "has 32.000000, expected below 32"},
    {"NF3 codes must be integers in [0, 7]", "w13 codes:", "is 8, expected 0 to 7"},
    {"divisible by tile_n (96)", "w13 tile_n: 96", "divides n 128"},
    {"NF3 tile_n must be a multiple", "w13 tile_n: 32", "a multiple of 64"},
    {"are bf16-only", "activation dtype: f16", "bf16 only"},
    {"must be integer tensors", "w13 codes: dtype f32"},
    {"NF3 w13 requires N % 64 == 0", "w13 codes: n x k is 96 x 128", "multiples of 64"},
};

}  // namespace

Result<Outputs> prepare_errors_table(const GoldenCase& c) {
  const Json* rows = c.params->find("rows");
  if (rows == nullptr || rows->as_array() == nullptr) {
    return Error{ErrorCode::not_found, "no rows", c.name};
  }
  for (const Json& row : *rows->as_array()) {
    const Result<void> result = Attempt(row).run();
    FEWBIT_TRY(check_row(c, row, result, causes));
  }
  return Outputs{};
}

}  // namespace fewbit::golden
