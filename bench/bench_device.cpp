// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_device.hpp"

#include <algorithm>

#include "device/device.hpp"

namespace fewbit::bench {
namespace {

template <class T>
std::span<const T> elements_of(const device::Buffer& buffer) {
  return {buffer.as<const T>(), buffer.size() / sizeof(T)};
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

// Seconds of the work at each repetition, for as long as the budget lasts and five times at least.
template <class Work>
Result<std::vector<double>> repeat(const Work& work, double budget, const device::Stream& stream) {
  FEWBIT_TRY(device::Event begin, device::Event::create());
  FEWBIT_TRY(device::Event end, device::Event::create());
  std::vector<double> seconds;
  constexpr int warm_up = 3;
  int round = 0;
  for (double spent = 0; spent < budget || seconds.size() < 5; ++round) {
    FEWBIT_TRY(begin.record(stream));
    FEWBIT_TRY(work());
    FEWBIT_TRY(end.record(stream));
    FEWBIT_TRY(stream.synchronize());
    FEWBIT_TRY(const float milliseconds, begin.elapsed_until(end));
    if (round < warm_up) continue;
    seconds.push_back(1e-3 * double{milliseconds});
    spent += seconds.back();
  }
  return seconds;
}

// What each layer's routing begins with: ids, or logits where a router has them.
Result<std::vector<device::Buffer>> routes_of(const DeviceCalls& calls,
                                              const device::Stream& stream) {
  std::vector<device::Buffer> routes;
  for (std::size_t i = 0; i < calls.layers.size(); ++i) {
    const auto of_layer = calls.logits.empty() ? std::as_bytes(std::span(calls.ids[i]))
                                               : std::as_bytes(std::span(calls.logits[i]));
    FEWBIT_TRY(device::Buffer buffer, device::copy_of(of_layer, stream));
    routes.push_back(std::move(buffer));
  }
  return routes;
}

}  // namespace

Result<DeviceTime> time_on_device(const DeviceCalls& calls, double budget, Executor& executor) {
  FEWBIT_TRY(const device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const device::Buffer hidden, device::copy_of(calls.hidden.bytes, stream));
  FEWBIT_TRY(const device::Buffer out, device::Buffer::allocate(hidden.size(), stream));
  FEWBIT_TRY(const device::Buffer weights,
             device::copy_of(std::as_bytes(calls.router_weights), stream));
  FEWBIT_TRY(const std::uint64_t bytes, calls.layers.front().device_workspace_bytes(calls.tokens));
  FEWBIT_TRY(const device::Buffer memory, device::Buffer::allocate(bytes + 1024, stream));
  const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % 1024;
  FEWBIT_TRY(const std::vector<device::Buffer> routes, routes_of(calls, stream));
  const bool routed = !calls.logits.empty();
  FEWBIT_TRY(stream.synchronize());
  MoeArgs args;
  args.tokens = calls.tokens;
  args.hidden = calls.hidden;
  args.hidden.bytes = elements_of<std::byte>(hidden);
  args.hidden.device.kind = DeviceKind::cuda;
  if (!routed) args.topk_weights = elements_of<float>(weights);
  args.out = {out.data(), out.size()};
  args.workspace = {memory.data() + (past == 0 ? 0 : 1024 - past), bytes};
  args.stream = stream.handle();
  FEWBIT_TRY(const device::Graph graph, device::Graph::record(stream, [&]() -> Result<void> {
               for (std::size_t i = 0; i < calls.layers.size(); ++i) {
                 if (routed) {
                   args.router_logits = elements_of<float>(routes[i]);
                 } else {
                   args.topk_ids = elements_of<std::int32_t>(routes[i]);
                 }
                 FEWBIT_TRY(calls.layers[i].run(args, executor));
               }
               return {};
             }));
  FEWBIT_TRY(const std::vector<double> seconds,
             repeat([&] { return graph.launch(stream); }, budget, stream));
  const auto layers = static_cast<double>(calls.layers.size());
  return DeviceTime{median(seconds) / layers,
                    static_cast<int>(seconds.size() * calls.layers.size())};
}

Result<MachineLimits> device_limits() {
  constexpr std::uint64_t bytes = std::uint64_t{2} << 30;
  FEWBIT_TRY(const device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const device::Buffer from, device::Buffer::allocate(bytes, stream));
  FEWBIT_TRY(const device::Buffer to, device::Buffer::allocate(bytes, stream));
  FEWBIT_TRY(device::fill(from.data(), 0x5A, bytes, stream));
  FEWBIT_TRY(const std::vector<double> seconds,
             repeat([&] { return device::copy_on_device(to.data(), from.data(), bytes, stream); },
                    0, stream));
  return MachineLimits{.threads = 1, .read_bytes_per_second = 2.0 * bytes / median(seconds)};
}

}  // namespace fewbit::bench
