// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "fewbit/executor.hpp"
#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Every element of [experts] matrices from one layout to the other, on all threads. table: what
// becomes of the elements, as ElementMap has it. Spare bits keep their values.
template <Layout From, Layout To>
void repack_experts(std::int64_t experts, Dims dims, std::span<const std::byte> in,
                    std::span<std::byte> out, Executor& executor,
                    Dims block = {.n = 64, .k = 512 / To::bits},
                    const std::uint8_t* table = nullptr) {
  ElementMap map = map_layouts<From, To>(dims, block);
  map.table = table;
  move_elements(
      ElementMover(std::move(map), packing_isa()),
      {.experts = experts, .source_bytes = From::bytes(dims), .out_bytes = To::bytes(dims)}, in,
      out, executor);
}

}  // namespace fewbit
