// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu_tile_layer.hpp"

#include <cstring>
#include <utility>

#include "backends/cpu/cpu.hpp"
#include "core/aligned_buffer.hpp"
#include "core/convert.hpp"
#include "kernels/soft_tiles.hpp"
#include "select/prepare_moe.hpp"

namespace fewbit::test {

int tile_products = 0;

namespace {

Lane16TilesFn* counted = nullptr;
void count_product(const Lane16Tiles& run) {
  ++tile_products;
  counted(run);
}
Lane16TilesFn* counted_tiles(Lane16Codes codes) {
  counted = lane16_soft_tiles(codes);
  return count_product;
}

template <Unit unit>
Backend backend_on() {
  Backend backend = unit == Unit::dots ? cpu_avx512_backend : cpu_amx_backend;
  backend.open_moe = [](const MoeProblem& problem, const MoePlan& plan, PreparedMemory memory) {
    return cpu::open_moe(kernels(unit), problem, plan, std::move(memory));
  };
  return backend;
}

}  // namespace

Lane16TilesFn* counted_dots(Lane16Codes codes) {
  counted = lane16_dots_avx512(codes);
  return counted == nullptr ? nullptr : count_product;
}

const cpu::Kernels& kernels(Unit unit) {
  const auto with = [](Lane16TilesOf* tiles, std::int64_t least_tile_tokens) {
    cpu::Kernels kernels = cpu::kernels_of(IsaLevel::amx);
    kernels.tiles = tiles;
    kernels.least_tile_tokens = least_tile_tokens;
    return kernels;
  };
  static const cpu::Kernels soft = with(lane16_soft_tiles, 1);
  static const cpu::Kernels amx = with(lane16_amx, 1);
  static const cpu::Kernels usual =
      with(counted_tiles, cpu::kernels_of(IsaLevel::amx).least_tile_tokens);
  if (unit == Unit::dots) return cpu::kernels_of(IsaLevel::avx512, {.avx512_fast_bf16 = true});
  if (unit == Unit::usual) return usual;
  return unit == Unit::soft ? soft : amx;
}

const Backend& backend_of(Unit unit) {
  static const Backend soft = backend_on<Unit::soft>();
  static const Backend amx = backend_on<Unit::amx>();
  static const Backend usual = backend_on<Unit::usual>();
  static const Backend dots = backend_on<Unit::dots>();
  if (unit == Unit::dots) return dots;
  if (unit == Unit::usual) return usual;
  return unit == Unit::soft ? soft : amx;
}

std::vector<NamedScheme> tile_schemes() {
  constexpr Granularity row{.rows = 1, .cols = 0};
  const auto grouped = [](DType weight, DType scale, std::int64_t group) {
    return scaled_scheme(weight, scale, {.rows = 1, .cols = group});
  };
  const auto changed = [](Scheme scheme, bool zeros, ActOrder order) {
    scheme.zero_points = zeros;
    scheme.act_order = order;
    return scheme;
  };
  using enum DType;
  return {
      {"nvfp4", nvfp4_scheme()},
      {"mxfp4", grouped(f4_e2m1, f8_e8m0, 32)},
      {"int4_g128", grouped(u4, bf16, 128)},
      {"int4_g32_signed", grouped(i4, f16, 32)},
      {"int4_channel", scaled_scheme(u4, f16, row)},
      {"int4_zeros", changed(grouped(u4, f16, 32), true, ActOrder::none)},
      {"int4_act_order", changed(grouped(u4, f16, 32), false, ActOrder::group)},
      {"int8_channel", scaled_scheme(i8, bf16, row)},
      {"int8_zeros_act_order", changed(grouped(u8, f16, 32), true, ActOrder::group)},
      {"fp8_tensor", scaled_scheme(f8_e4m3, f32, {})},
      {"fp8_block", scaled_scheme(f8_e4m3, f32, {.rows = 128, .cols = 128})},
      {"mxfp8", grouped(f8_e4m3, f8_e8m0, 32)},
      {"ternary", grouped(u2, f16, 64)},
  };
}

TileLayer::TileLayer(const Backend& backend, const MoeProblem& problem, const MoeWeights& weights)
    : problem_(problem) {
  auto prepared = prepare_moe(backend, problem, weights, serial_executor());
  EXPECT_TRUE(prepared) << prepared.error().message();
  if (prepared) layer_ = std::move(*prepared);
}

std::vector<float> TileLayer::run(const Call& call, Executor& executor,
                                  std::optional<AmaxTable> amax) const {
  std::vector<std::byte> hidden(call.hidden.size() * 2);
  EXPECT_TRUE(convert_from_f32(call.hidden, DType::bf16, hidden));
  std::vector<std::byte> out(hidden.size());
  AlignedBuffer workspace = *AlignedBuffer::allocate(*layer_->workspace_bytes(call.tokens));
  std::memset(workspace.data(), 0xff, workspace.size());
  MoeArgs args = args_of(problem_, call, hidden);
  args.out = out;
  args.amax = amax;
  args.workspace = workspace.span();
  EXPECT_TRUE(layer_->run(args, executor));
  return to_f32(DType::bf16, out);
}

}  // namespace fewbit::test
