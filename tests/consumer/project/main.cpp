// SPDX-License-Identifier: Apache-2.0
// Reads a checkpoint, gathers a layer's experts and prints what they are; arranges a layer in
// memory for b12x's kernels.
#include <cstdio>
#include <fewbit/fewbit.hpp>
#include <vector>

namespace {
int fail(const fewbit::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}

fewbit::TensorView view(fewbit::DType dtype, fewbit::Shape shape,
                        const std::vector<std::byte>& bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}

// Two experts of MXFP4 whose every code is 1 (0.5) and every scale 2^0.
fewbit::Result<std::size_t> packed_bytes() {
  const std::vector<std::byte> codes(2 * 128 * 32, std::byte{0x11});
  const std::vector<std::byte> scales(2 * 128 * 2, std::byte{127});
  const std::vector<std::byte> globals(8);
  fewbit::W4a16Input input;
  input.source = *fewbit::w4a16_source_from_name("fp4_e8m0_k32");
  input.block_scale_storage = fewbit::BlockScaleStorage::plain;
  input.w13_order = *fewbit::w13_order_from_name("w31");
  input.hidden_size = 64;
  input.intermediate_size = 64;
  input.w13 = {.codes = view(fewbit::DType::u8, {2, 128, 32}, codes),
               .block_scales = view(fewbit::DType::f8_e8m0, {2, 128, 2}, scales),
               .global_scales = view(fewbit::DType::f32, {2}, globals)};
  const std::vector<std::byte> down_codes(2 * 64 * 32, std::byte{0x11});
  const std::vector<std::byte> down_scales(2 * 64 * 2, std::byte{127});
  input.w2 = {.codes = view(fewbit::DType::u8, {2, 64, 32}, down_codes),
              .block_scales = view(fewbit::DType::f8_e8m0, {2, 64, 2}, down_scales),
              .global_scales = view(fewbit::DType::f32, {2}, globals)};
  const auto plan = fewbit::plan_w4a16(input);
  if (!plan) return plan.error();
  std::vector<std::byte> memory[4] = {
      std::vector<std::byte>(static_cast<std::size_t>(plan->w13.tiles_bytes)),
      std::vector<std::byte>(static_cast<std::size_t>(plan->w13.scales_bytes)),
      std::vector<std::byte>(static_cast<std::size_t>(plan->w2.tiles_bytes)),
      std::vector<std::byte>(static_cast<std::size_t>(plan->w2.scales_bytes))};
  std::vector<float> scale13(2);
  std::vector<float> scale2(2);
  const fewbit::W4a16Output output{
      .w13 = {.tiles = memory[0], .scales = memory[1], .global_scales = scale13},
      .w2 = {.tiles = memory[2], .scales = memory[3], .global_scales = scale2}};
  const auto cpu = fewbit::detect_cpu();
  if (!cpu) return cpu.error();
  const auto report = fewbit::prepare_w4a16(input, output, cpu->isa, fewbit::serial_executor());
  if (!report) return report.error();
  return memory[0].size() + memory[2].size();
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto checkpoint = fewbit::Checkpoint::open(argv[1]);
  if (!checkpoint) return fail(checkpoint.error());
  auto identified = fewbit::identify(*checkpoint);
  if (!identified) return fail(identified.error());
  auto weights = fewbit::gather_moe(*checkpoint, *identified, 0);
  if (!weights) return fail(weights.error());
  const auto bytes = packed_bytes();
  if (!bytes) return fail(bytes.error());
  std::printf("%zu modules, %zu experts, %zu bytes of tiles\n", identified->modules.size(),
              weights->experts.size(), *bytes);
}
