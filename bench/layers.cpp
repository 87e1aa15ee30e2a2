// SPDX-License-Identifier: Apache-2.0
// bench_layers FILE [NAME…]: measures the MoE layers of a problem file (all, or those named).
// FEWBIT_THREADS, FEWBIT_ISA and FEWBIT_BACKEND apply.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string_view>

#include "bench/measure.hpp"
#include "bench/usage.hpp"

namespace {

fewbit::Result<void> measure(const char* file, std::span<char*> names) {
  FEWBIT_TRY(const auto shapes, fewbit::bench::read_shapes(file));
  FEWBIT_TRY(const auto device, fewbit::detect_cpu());
  FEWBIT_TRY(const auto executor, fewbit::make_thread_pool());
  for (const fewbit::bench::LayerShape& shape : shapes) {
    const auto is_it = [&](const char* name) { return shape.name == std::string_view(name); };
    if (!names.empty() && std::ranges::none_of(names, is_it)) continue;
    FEWBIT_TRY(const auto bench, fewbit::bench::bench_layer(shape, device, {}, *executor));
    fmt::print("{}", fewbit::bench::bench_text(bench));
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const fewbit::bench::Usage usage{
      .text = "bench_layers FILE [NAME…]", .options = {}, .least_words = 1, .most_words = argc};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  const auto done = measure(argv[1], std::span(argv + 2, static_cast<std::size_t>(argc - 2)));
  if (!done) fmt::print(stderr, "{}\n", done.error().message());
  return done ? 0 : 1;
}
