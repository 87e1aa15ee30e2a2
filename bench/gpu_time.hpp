// SPDX-License-Identifier: Apache-2.0
// Times on a GPU, for the programs that are carried to one.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace fewbit::cuda {

// Microseconds: the median of the replays after three that warm up.
inline Result<double> replay_time(const device::Graph& graph, int replays,
                                  const device::Stream& stream) {
  FEWBIT_TRY(device::Event begin, device::Event::create());
  FEWBIT_TRY(device::Event end, device::Event::create());
  std::vector<float> times;
  for (int i = 0; i < replays + 3; ++i) {
    FEWBIT_TRY(begin.record(stream));
    FEWBIT_TRY(graph.launch(stream));
    FEWBIT_TRY(end.record(stream));
    FEWBIT_TRY(stream.synchronize());
    FEWBIT_TRY(const float ms, begin.elapsed_until(end));
    if (i >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return 1e3 * times[times.size() / 2];
}

// Bytes read and written in a second by a copy of 2 GiB on the device: cards of one name differ by
// some percent.
inline Result<double> copy_rate() {
  constexpr std::uint64_t bytes = std::uint64_t{2} << 30;
  FEWBIT_TRY(const device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const device::Buffer from, device::Buffer::allocate(bytes, stream));
  FEWBIT_TRY(const device::Buffer to, device::Buffer::allocate(bytes, stream));
  FEWBIT_TRY(device::fill(from.data(), 0x5A, bytes, stream));
  FEWBIT_TRY(device::Event begin, device::Event::create());
  FEWBIT_TRY(device::Event end, device::Event::create());
  std::vector<float> times;
  for (int i = 0; i < 7; ++i) {
    FEWBIT_TRY(begin.record(stream));
    FEWBIT_TRY(device::copy_on_device(to.data(), from.data(), bytes, stream));
    FEWBIT_TRY(end.record(stream));
    FEWBIT_TRY(stream.synchronize());
    FEWBIT_TRY(const float ms, begin.elapsed_until(end));
    if (i >= 2) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return 2 * static_cast<double>(bytes) / (1e-3 * times[times.size() / 2]);
}

// The first card with its copy rate.
inline Result<DeviceInfo> print_card() {
  FEWBIT_TRY(DeviceInfo info, device::info(0));
  FEWBIT_TRY(const double rate, copy_rate());
  std::printf("%s, %d multiprocessors, a copy moves %.0f GB/s\n", info.name.c_str(), info.sm_count,
              rate * 1e-9);
  return info;
}

// Tells it; a program's exit status.
inline int failed(const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.message().c_str());
  return 1;
}

// Whether a list with commas names it, or names none.
inline bool names(const std::string& list, const std::string& name) {
  return list.empty() || ("," + list + ",").find("," + name + ",") != std::string::npos;
}

// "1,4,16"
inline std::vector<std::int64_t> numbers_of(const char* text) {
  std::vector<std::int64_t> out;
  for (const char* p = text; p != nullptr;
       p = std::strchr(p, ',') ? std::strchr(p, ',') + 1 : nullptr) {
    out.push_back(std::atoll(p));
  }
  return out;
}

}  // namespace fewbit::cuda
