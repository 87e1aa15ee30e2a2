// SPDX-License-Identifier: Apache-2.0
// The products of moe_f4_grouped.hpp. A tile is an item (routes of an expert) times 8 to 16
// units of 32 weight rows; a warp dequantizes one of them, and a warpgroup of four makes two
// products of 64 rows: with the gate rows and with the up rows (fc2: the upper and lower rows of
// down). A thread block takes tiles in turn; the copies run over their ends.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/f4_cell.cuh"
#include "kernels/cuda/f8_cell.cuh"
#include "kernels/cuda/grouped_routes.cuh"
#include "kernels/cuda/grouped_rows.cuh"
#include "kernels/cuda/int_cell.cuh"
#include "kernels/cuda/moe_f4_grouped.hpp"
#include "kernels/cuda/warpgroup_product.cuh"

namespace fewbit::cuda {

// How wide items are (their most rows) and what shares a tile: the fewer columns, the more
// warpgroups a block has registers for. A further warpgroup, of which one warp copies, gives its
// registers to them.
template <class Format, int rows>
struct GroupedTile {
  static constexpr int item_rows = rows;
  static constexpr int warpgroups = rows > 32 ? 2 : Format::narrow_warpgroups;
  static constexpr int width = rows <= 32 ? 16 : rows / 4;  // products are 1 to 4 times as wide
  static constexpr int units = 4 * warpgroups;              // a warp each
  static constexpr int threads = (warpgroups + 1) * 128;
  static constexpr int registers = warpgroups == 4 ? 112 : warpgroups == 3 ? 160 : 240;
  static constexpr int rows_bytes = item_rows * 128;
  static constexpr int unit_bytes = 2 * Format::most_cell_bytes;  // of a step of 64 k
  static constexpr int stage_bytes = (rows_bytes + units * unit_bytes + 1023) / 1024 * 1024;
};

struct GroupedBarriers {
  std::uint64_t full[grouped_stages];
  std::uint64_t empty[grouped_stages];
};

// One of the two matrices.
struct GroupedMatrix {
  const std::uint8_t* weights;
  const std::uint8_t* rows;  // images of the items
  long long unit_bytes;
  int depth;
  int units;
};

struct RingStage {
  int stage = 0;
  int parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == grouped_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The copying warp: lane u brings unit u of the tile, the next one the activations.
template <class Format, class Tile>
__device__ void copy_tiles(const CellFormat& format, const GroupedMatrix& m,
                           const GroupedItem* items, int tiles, int tile_rows,
                           GroupedBarriers& barriers, std::uint8_t* ring) {
  const int lane = threadIdx.x % 32;
  const std::uint64_t policy = evict_first_policy();
  RingStage place;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const GroupedItem item = items[tile / tile_rows];
    const int first_unit = tile % tile_rows * Tile::units;
    const int units = min(Tile::units, m.units - first_unit);
    const std::uint32_t row_bytes = item.rows * 128;
    const std::uint8_t* weights =
        m.weights +
        (static_cast<long long>(item.expert) * m.units + first_unit + lane) * m.unit_bytes;
    const std::uint8_t* rows = m.rows + 2LL * item.first_row * m.depth;
    for (int step = 0; step < m.depth / grouped_step; ++step) {
      const std::uint32_t full = shared_address(&barriers.full[place.stage]);
      const std::uint32_t to = shared_address(ring + place.stage * Tile::stage_bytes);
      barrier_wait(shared_address(&barriers.empty[place.stage]), place.parity ^ 1);
      const StepPart part = Format::part_of_step(format, step);
      if (lane == 0) barrier_expect(full, row_bytes + units * part.bytes);
      __syncwarp();
      if (lane < units) {
        bulk_copy(to + Tile::rows_bytes + lane * Tile::unit_bytes + part.to, weights, part.bytes,
                  full, policy);
        weights += part.bytes;
      } else if (lane == Tile::units) {
        bulk_copy(to, rows, row_bytes, full);
        rows += row_bytes;
      }
      place.next();
    }
  }
}

// Sums of a warpgroup: two halves of 64 rows times the columns.
template <int columns>
struct GroupedSums {
  float value[2][columns / 2];
};

// What was summed under the scales of a header.
template <class Format, int columns>
__device__ __forceinline__ void add_part(GroupedSums<columns>& sums, GroupedSums<columns>& part,
                                         const typename Format::Header& header,
                                         const CellFormat& format) {
  float scale[2][2];
  Format::scale_values(header, format, scale);
  sums_ready(part.value[0]);
  sums_ready(part.value[1]);
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    const int half = i / (columns / 2);
    const int j = i % (columns / 2);
    sums.value[half][j] = fmaf(scale[half][j / 2 % 2], part.value[half][j], sums.value[half][j]);
  }
}

template <class Format, class Tile, int columns>
__device__ __forceinline__ void multiply_tile(GroupedSums<columns>& sums, int steps,
                                              GroupedBarriers& barriers, std::uint8_t* ring,
                                              RingStage& place) {
  using Element = typename Format::Element;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
#pragma unroll
  for (int i = 0; i < columns; ++i) sums.value[i / (columns / 2)][i % (columns / 2)] = 0.0F;
  std::uint32_t a[2][2][2][4] = {};  // [cell][half][k16]
  int before = -1;                   // the stage whose products may still be on their way
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    barrier_wait(shared_address(&barriers.full[place.stage]), place.parity);
    const std::uint8_t* stage = ring + place.stage * Tile::stage_bytes;
    const std::uint8_t* cells = stage + Tile::rows_bytes + warp * Tile::unit_bytes;
    const std::uint64_t rows = swizzled_matrix(shared_address(stage));
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const std::uint8_t* cell = cells + c * Format::cell_bytes;
      const uint4 codes = *reinterpret_cast<const uint4*>(cell + lane * 16);
      const auto scales =
          *reinterpret_cast<const std::uint32_t*>(cell + 512 + Format::scale_at(lane));
      Format::dequantize(codes, scales, a[c]);
      products_fence();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          WarpgroupProduct<columns>::template add<Element>(sums.value[half], a[c][half][k],
                                                           rows + (2 * c + k) * 2);
        }
      }
      products_commit();
      products_wait<1>();
#pragma unroll
      for (int i = 0; i < 4; ++i) operands_read(a[c ^ 1][i / 2][i % 2]);
      if (c == 0 && before >= 0 && lane == 0) {
        barrier_arrive(shared_address(&barriers.empty[before]), 1);
      }
    }
    before = place.stage;
    place.next();
  }
  products_wait<0>();
#pragma unroll
  for (int i = 0; i < 8; ++i) operands_read(a[i / 4][i / 2 % 2][i % 2]);
  sums_ready(sums.value[0]);
  sums_ready(sums.value[1]);
  if (lane == 0) barrier_arrive(shared_address(&barriers.empty[before]), 1);
}

// The same for formats whose scales are multiplied into sums: products of the cells that share
// scales are summed apart. While they are on their way the next cell, or the next of the numbers
// that its weights are sums of, is dequantized.
template <class Format, class Tile, int columns>
__device__ __forceinline__ void multiply_scaled_tile(GroupedSums<columns>& sums, int steps,
                                                     const CellFormat& format,
                                                     GroupedBarriers& barriers, std::uint8_t* ring,
                                                     RingStage& place) {
  using Element = typename Format::Element;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  GroupedSums<columns> part;
#pragma unroll
  for (int i = 0; i < columns; ++i) {
    sums.value[i / (columns / 2)][i % (columns / 2)] = 0.0F;
    part.value[i / (columns / 2)][i % (columns / 2)] = 0.0F;
  }
  const int shared_cells = Format::scale_cells(format);
  typename Format::Header header = {};
  std::uint32_t a[2][2][2][4] = {};  // [turn][half][k16]
  int before = -1;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    barrier_wait(shared_address(&barriers.full[place.stage]), place.parity);
    const std::uint8_t* stage = ring + place.stage * Tile::stage_bytes;
    const std::uint8_t* unit = stage + Tile::rows_bytes + warp * Tile::unit_bytes;
    const std::uint64_t rows = swizzled_matrix(shared_address(stage));
#pragma unroll
    for (int turn = 0; turn < 2 * Format::terms; ++turn) {
      const int c = turn / Format::terms;
      const int term = turn % Format::terms;
      const bool fresh = term == 0 && ((2 * step + c) & (shared_cells - 1)) == 0;
      typename Format::Header now = header;
      if (fresh) now = Format::load_step_header(unit, c, lane, format);
      Format::dequantize_step(unit, c, term, lane, format, now, a[turn % 2]);
      if (fresh && step + c > 0) {
        products_wait<0>();
        add_part<Format, columns>(sums, part, header, format);
      }
      header = now;
      products_fence();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          WarpgroupProduct<columns>::template add<Element>(part.value[half], a[turn % 2][half][k],
                                                           rows + (2 * c + k) * 2,
                                                           k == 0 && fresh ? 0 : 1);
        }
      }
      products_commit();
      products_wait<1>();
#pragma unroll
      for (int i = 0; i < 4; ++i) operands_read(a[turn % 2 ^ 1][i / 2][i % 2]);
      if (turn == 0 && before >= 0 && lane == 0) {
        barrier_arrive(shared_address(&barriers.empty[before]), 1);
      }
    }
    before = place.stage;
    place.next();
  }
  products_wait<0>();
#pragma unroll
  for (int i = 0; i < 8; ++i) operands_read(a[i / 4][i / 2 % 2][i % 2]);
  add_part<Format, columns>(sums, part, header, format);
  if (lane == 0) barrier_arrive(shared_address(&barriers.empty[before]), 1);
}

// swigluoai() within some units in the last place.
__device__ __forceinline__ float fast_swiglu(float gate, float up, float alpha, float beta) {
  return __fdividef(gate, 1.0F + __expf(-alpha * gate)) * (up + beta);
}

// Activates a unit's sums and stores them as fc2 reads them. A lane has features g and g + 8 of the
// columns 2 t and 2 t + 1; it gives one column to the lane of the neighbouring feature and stores
// two neighbouring features of the other.
template <class Element, int columns>
__device__ __forceinline__ void store_activated_rows(const GroupedPlan& plan, const MoeF4Args& args,
                                                     const GroupedItem& item, int unit,
                                                     const float* row_weight, std::uint8_t* images,
                                                     const GroupedSums<columns>& sums) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int odd = g & 1;
  const MoeF4Rule& rule = args.rule;
  const float gate_scale = __ldg(args.global13 + 2 * item.expert);
  const float up_scale = __ldg(args.global13 + 2 * item.expert + 1);
  float bias[2][2] = {};  // [half][g or g + 8]
  if (args.bias13 != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int feature = unit * 16 + g + i % 2 * 8;
      if (feature < plan.inner) {
        bias[i / 2][i % 2] =
            __ldg(args.bias13 + (2LL * item.expert + i / 2) * plan.inner + feature);
      }
    }
  }
  std::uint8_t* image = images + 2LL * item.first_row * plan.inner;
  const int chunk = unit / 2 % 2 * 4 + g / 2;
#pragma unroll
  for (int j = 0; j < columns / 8; ++j) {
    if (j * 8 >= item.rows) break;
    std::uint32_t column[2];  // features g and g + 8
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int n = j * 8 + lane % 4 * 2 + c;
      const float weight =
          rule.router_weight_on_input && n < item.count ? row_weight[item.first_row + n] : 1.0F;
      float value[2];
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int i = j * 4 + high * 2 + c;
        const float gate = sums.value[0][i] * gate_scale * weight + bias[0][high];
        const float up = sums.value[1][i] * up_scale * weight + bias[1][high];
        value[high] =
            fast_swiglu(clamp_gate(gate, rule.constants.limit), clamp_up(up, rule.constants.limit),
                        rule.constants.alpha, rule.constants.beta);
      }
      column[c] = Element::round_pair(value[0], value[1]);
    }
    const std::uint32_t kept = odd ? column[1] : column[0];
    const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, odd ? column[0] : column[1], 4);
    const std::uint32_t even_feature = odd ? got : kept;
    const std::uint32_t odd_feature = odd ? kept : got;
    const int n = j * 8 + lane % 4 * 2 + odd;
    const std::uint32_t place = chunk_place(item.rows, n, unit / 4, chunk) + unit % 2 * 8;
    *reinterpret_cast<uint2*>(image + place) = {__byte_perm(even_feature, odd_feature, 0x5410),
                                                __byte_perm(even_feature, odd_feature, 0x7632)};
  }
}

// Weighted products of a unit.
template <int columns>
__device__ __forceinline__ void store_product_rows(const GroupedPlan& plan, const MoeF4Args& args,
                                                   const GroupedItem& item, int unit,
                                                   const float* row_weight, float* products,
                                                   const GroupedSums<columns>& sums) {
  const int lane = threadIdx.x % 32;
  const float scale = __ldg(args.global2 + item.expert);
  const auto* weights = reinterpret_cast<const float2*>(row_weight + item.first_row) + lane % 4;
  float bias[2][2] = {};
  if (args.bias2 != nullptr) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bias[i / 2][i % 2] = __ldg(args.bias2 + static_cast<long long>(item.expert) * plan.hidden +
                                 i / 2 * (plan.hidden / 2) + unit * 16 + lane / 4 + i % 2 * 8);
    }
  }
  float4* out =
      reinterpret_cast<float4*>(products + static_cast<long long>(item.first_row) * plan.hidden) +
      unit * 8 + lane / 4;
#pragma unroll
  for (int j = 0; j < columns / 8; ++j) {
    if (j * 8 >= item.rows) break;
    const float2 weight =
        args.rule.router_weight_on_input ? float2{1.0F, 1.0F} : __ldg(weights + j * 4);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int n = j * 8 + lane % 4 * 2 + c;
      const float w = c == 0 ? weight.x : weight.y;
      const float4 value = {(sums.value[0][j * 4 + c] * scale + bias[0][0]) * w,
                            (sums.value[0][j * 4 + 2 + c] * scale + bias[0][1]) * w,
                            (sums.value[1][j * 4 + c] * scale + bias[1][0]) * w,
                            (sums.value[1][j * 4 + 2 + c] * scale + bias[1][1]) * w};
      if (n < item.count) out[static_cast<long long>(n) * (plan.hidden / 4)] = value;
    }
  }
}

// A lane's rows of both halves by their scales, where there are any.
template <int columns>
__device__ __forceinline__ void scale_row_sums(const float* scales, int expert, int rows_half,
                                               int unit, GroupedSums<columns>& sums) {
  if (scales == nullptr) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = unit * 16 + threadIdx.x % 32 / 4 + i % 2 * 8;
    const float scale = __ldg(scales + (2LL * expert + i / 2) * rows_half + row);
#pragma unroll
    for (int j = 0; j < columns / 2; ++j) {
      if (j / 2 % 2 == i % 2) sums.value[i / 2][j] *= scale;
    }
  }
}

// A consumer warpgroup's part of a tile.
template <class Format, class Tile, bool first, int columns>
__device__ __forceinline__ void run_tile(const GroupedPlan& plan, const MoeF4Args& args,
                                         const GroupedMatrix& m, const GroupedItem& item, int unit,
                                         void* scratch, GroupedBarriers& barriers,
                                         std::uint8_t* ring, RingStage& place) {
  GroupedSums<columns> sums;
  if constexpr (Format::scaled_sums) {
    multiply_scaled_tile<Format, Tile, columns>(sums, m.depth / grouped_step, args.format, barriers,
                                                ring, place);
  } else {
    multiply_tile<Format, Tile, columns>(sums, m.depth / grouped_step, barriers, ring, place);
  }
  if (unit >= m.units) return;
  if constexpr (Format::row_scales) {
    scale_row_sums<columns>(first ? args.row_scale13 : args.row_scale2, item.expert,
                            first ? plan.inner : plan.hidden / 2, unit, sums);
  }
  const auto* row_weight = at<float>(scratch, plan.row_weight_at);
  if (first) {
    store_activated_rows<typename Format::Element, columns>(
        plan, args, item, unit, row_weight, at<std::uint8_t>(scratch, plan.activated_at), sums);
  } else {
    store_product_rows<columns>(plan, args, item, unit, row_weight,
                                at<float>(scratch, plan.products_at), sums);
  }
}

template <class Format, class Tile, bool first>
__global__ void __launch_bounds__(Tile::threads, 1)
    grouped_products(const __grid_constant__ GroupedPlan plan,
                     const __grid_constant__ MoeF4Args args, void* scratch) {
  extern __shared__ std::uint8_t shared[];
  __shared__ GroupedBarriers barriers;
  const std::uint32_t past = shared_address(shared) & 1023U;
  std::uint8_t* ring = shared + (past == 0 ? 0 : 1024 - past);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x < grouped_stages) {
    barrier_init(shared_address(&barriers.full[threadIdx.x]), 1);
    barrier_init(shared_address(&barriers.empty[threadIdx.x]), Tile::units);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  GroupedMatrix m;
  m.weights = first ? args.w13 : args.w2;
  m.rows = at<std::uint8_t>(scratch, first ? plan.x_at : plan.activated_at);
  m.depth = first ? plan.hidden : plan.inner;
  m.units = first ? plan.units1 : plan.units2;
  m.unit_bytes = Format::unit_bytes(args.format, m.depth);
  const auto* items = at<GroupedItem>(scratch, plan.items_at);
  const int tile_rows = (m.units + Tile::units - 1) / Tile::units;
  const int tiles = __ldg(at<int>(scratch, plan.items_count_at)) * tile_rows;
  if (warp >= Tile::units) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (warp == Tile::units) {
      copy_tiles<Format, Tile>(args.format, m, items, tiles, tile_rows, barriers, ring);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Tile::registers));
    RingStage place;
#pragma unroll 1
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const GroupedItem item = items[tile / tile_rows];
      const int unit = tile % tile_rows * Tile::units + warp;
      const auto run = [&](auto product) {
        run_tile<Format, Tile, first, decltype(product)::value>(plan, args, m, item, unit, scratch,
                                                                barriers, ring, place);
      };
      // More widths than four in one kernel are more than the compiler finds registers for.
      constexpr int wide = Tile::width;
      if (item.rows <= wide) {
        run(std::integral_constant<int, wide>{});
      } else if (Tile::item_rows == 2 * wide || item.rows <= 2 * wide) {
        run(std::integral_constant<int, 2 * wide>{});
      } else if (!Format::scaled_sums && item.rows <= 3 * wide) {
        if constexpr (!Format::scaled_sums) run(std::integral_constant<int, 3 * wide>{});
      } else {
        run(std::integral_constant<int, Tile::item_rows>{});
      }
    }
  }
}

}  // namespace fewbit::cuda
