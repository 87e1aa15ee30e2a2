// SPDX-License-Identifier: Apache-2.0
#include "model/rms_norm.hpp"

#include "model/row_tasks.hpp"

namespace fewbit {

void rms_norm(const RmsNorm& norm, DType dtype, std::span<const std::byte> x,
              std::span<std::byte> y, Executor& executor) {
  with_element_type(dtype, [&]<class T>(T) {
    const std::size_t width = norm.weight.size();
    const auto from = elements<T>(x);
    const auto to = elements<T>(y);
    for_each_row(executor, static_cast<std::int64_t>(from.size() / width), [&](std::int64_t row) {
      const auto in = from.subspan(to_size(row) * width, width);
      const auto out = to.subspan(to_size(row) * width, width);
      const float factor = rms_factor(in, norm.epsilon);
      for (std::size_t i = 0; i < width; ++i) {
        out[i] = round_to_element<T>(element_value(in[i]) * factor * norm.weight[i]);
      }
    });
  });
}

}  // namespace fewbit
