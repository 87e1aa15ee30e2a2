// SPDX-License-Identifier: Apache-2.0
// Elements from one layout to another, block by block.
#pragma once

#include <string>
#include <utility>

#include "bench/repack_buffers.hpp"
#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"

namespace fewbit::bench {

template <Layout From, Layout To>
RepackCase layouts(std::string name, const SharedBuffers& buffers, Dims dims, Dims block,
                   IsaLevel isa) {
  const std::int64_t count = experts_of(From::bytes(dims));
  const ExpertBytes share{
      .experts = count, .source_bytes = From::bytes(dims), .out_bytes = To::bytes(dims)};
  return {.name = std::move(name),
          .read_bytes = count * share.source_bytes,
          .written_bytes = count * (share.out_bytes - To::spare_bits(dims) / 8),
          .run = [=](Executor& executor) -> Result<void> {
            const ElementMover mover(map_layouts<From, To>(dims, block), isa);
            move_elements(mover, share, buffers->source.span(), buffers->out.span(), executor);
            return {};
          }};
}

}  // namespace fewbit::bench
