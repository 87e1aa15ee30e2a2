// SPDX-License-Identifier: Apache-2.0
// Stands for device_cuda.cpp where fewbit is built without CUDA.
#include "device/device.hpp"

namespace fewbit::device {
namespace {

Error absent(std::string where) {
  return Error{ErrorCode::unsupported,
               "this build of fewbit has no CUDA code: configure it with FEWBIT_CUDA=ON",
               std::move(where)};
}

}  // namespace

Result<void> check(int status, std::string where) {
  if (status == 0) return {};
  return absent(std::move(where));
}

std::vector<std::string> built_for() { return {}; }
Result<int> count() { return absent("counting devices"); }
Result<DeviceInfo> info(int index) { return absent("CUDA device " + std::to_string(index)); }
Result<void> use(int index) { return absent("CUDA device " + std::to_string(index)); }

// Streams, events, buffers and graphs of this build are never made, so nothing is ever freed.
Result<Stream> Stream::create() { return absent("making a stream"); }
Stream::~Stream() { handle_ = nullptr; }
Result<void> Stream::synchronize() const { return absent("work on a stream"); }

Result<Event> Event::create() { return absent("making an event"); }
Event::~Event() { handle_ = nullptr; }
Result<void> Event::record(const Stream& /*stream*/) { return absent("recording an event"); }
Result<void> Event::block(const Stream& /*stream*/) const {
  return absent("waiting for an event on a stream");
}
Result<void> Event::synchronize() const { return absent("waiting for an event"); }
Result<float> Event::elapsed_until(const Event& /*later*/) const {
  return absent("time between events");
}

Result<Buffer> Buffer::allocate(std::uint64_t bytes, const Stream& /*stream*/) {
  return absent("allocating " + std::to_string(bytes) + " bytes of device memory");
}
Buffer::~Buffer() { data_ = nullptr; }

Result<void> copy_to_device(void* /*to*/, std::span<const std::byte> from,
                            const Stream& /*stream*/) {
  return absent("copying " + std::to_string(from.size()) + " bytes to the device");
}
Result<void> copy_to_host(std::span<std::byte> to, const void* /*from*/, const Stream& /*stream*/) {
  return absent("copying " + std::to_string(to.size()) + " bytes to the host");
}
Result<void> copy_on_device(void* /*to*/, const void* /*from*/, std::uint64_t bytes,
                            const Stream& /*stream*/) {
  return absent("copying " + std::to_string(bytes) + " bytes on the device");
}
Result<void> copy_rows(const Rows& rows, const Stream& /*stream*/) {
  return absent("copying " + std::to_string(rows.rows) + " rows of " + std::to_string(rows.width) +
                " bytes");
}
Result<void> fill(void* /*to*/, std::uint8_t /*value*/, std::uint64_t bytes,
                  const Stream& /*stream*/) {
  return absent("filling " + std::to_string(bytes) + " bytes of device memory");
}
Result<void> fill_on(void* /*to*/, std::uint8_t /*value*/, std::uint64_t bytes, void* /*stream*/) {
  return absent("filling " + std::to_string(bytes) + " bytes of device memory");
}

Graph::~Graph() { handle_ = nullptr; }
Result<void> Graph::begin(const Stream& /*stream*/) { return absent("recording a graph"); }
Result<Graph> Graph::end(const Stream& /*stream*/) { return absent("recording a graph"); }
Result<void> Graph::launch(const Stream& /*stream*/) const { return absent("replaying a graph"); }

}  // namespace fewbit::device
