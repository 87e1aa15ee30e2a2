// SPDX-License-Identifier: Apache-2.0
#include "scheme/scale_sharing.hpp"

#include "scheme/scale_fit.hpp"

namespace fewbit {
namespace {

// One block as large as the matrix is one scale.
std::string_view sharing_of(const Module& module) {
  const Granularity& grid = module.scheme.scale->granularity;
  const bool whole_columns = grid.rows == 0 || grid.rows >= module.n;
  const bool whole_rows = grid.cols == 0 || grid.cols >= module.k;
  if (whole_columns && whole_rows) return "tensor";
  if (grid.rows != 1) return "block";
  return whole_rows ? "channel" : "group";
}

}  // namespace

bool sharing_fits(const Sharing& said, const Module& module) {
  const std::string_view stored = sharing_of(module);
  if (said.name == "tensor" || said.name == "channel") {
    return said.name == stored || module.n == 1;
  }
  if (said.name == "group" || said.name == "tensor_group") {
    const bool one_group = said.group_size.value_or(0) >= module.k;
    return stored == "group" || (one_group && (stored == "channel" || module.n == 1));
  }
  if (said.name != "block" || stored == "block") return true;
  const Granularity block = said.block.value_or(usual_block);
  return stored == "tensor" && block.rows >= module.n && block.cols >= module.k;
}

}  // namespace fewbit
