// SPDX-License-Identifier: Apache-2.0
// CUDA devices for host code: memory, copies, streams, events and graphs as values that clean up
// after themselves. No CUDA header is needed to use it; a build without CUDA has the same
// functions, which find no device.
//
// Every failure is returned with its place: `where` is the operation with its sizes, `what` CUDA's
// name and text. Codes: unsupported (no CUDA in this build, no driver, no such device), limit (out
// of device memory), io (everything else).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"

namespace fewbit::device {

// CUDA's status codes as plain numbers, 0 is success; for what kernel launchers return.
Result<void> check(int status, std::string where);

// 0 where there is no driver or no device. Error unsupported: this build holds no CUDA code.
Result<int> count();
// Name, capability, multiprocessors, memory.
Result<DeviceInfo> info(int index);
// Architectures that this build holds kernels for: "sm_90a" …
std::vector<std::string> built_for();
// Makes a device current for the calling thread.
Result<void> use(int index);

// Order of work on a device. Work on different streams may overlap.
class Stream {
 public:
  static Result<Stream> create();
  Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Stream();

  void* handle() const { return handle_; }  // a cudaStream_t
  // Waits for all work on the stream, and reports what failed of it.
  Result<void> synchronize() const;

 private:
  explicit Stream(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

class Event {
 public:
  static Result<Event> create();
  Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  Result<void> record(const Stream& stream);
  // Later work on the stream begins after the event.
  Result<void> block(const Stream& stream) const;
  Result<void> synchronize() const;
  // Milliseconds from this event to a later one, both reached.
  Result<float> elapsed_until(const Event& later) const;

 private:
  explicit Event(void* handle) : handle_(handle) {}
  void* handle_ = nullptr;
};

// Device memory, 256-byte aligned, taken and given back in the order of its stream, which must
// outlive it.
class Buffer {
 public:
  static Result<Buffer> allocate(std::uint64_t bytes, const Stream& stream);
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
  }
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  void* stream_ = nullptr;
};

// Copies in the order of the stream. Host memory must stay as it is until the stream has come to
// them.
Result<void> copy_to_device(void* to, std::span<const std::byte> from, const Stream& stream);
Result<void> copy_to_host(std::span<std::byte> to, const void* from, const Stream& stream);
Result<void> copy_on_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream);
// A buffer of the values.
inline Result<Buffer> copy_of(std::span<const std::byte> bytes, const Stream& stream) {
  FEWBIT_TRY(Buffer buffer, Buffer::allocate(bytes.size(), stream));
  FEWBIT_TRY(copy_to_device(buffer.data(), bytes, stream));
  return buffer;
}
template <class T>
Result<Buffer> copy_of(const std::vector<T>& values, const Stream& stream) {
  return copy_of(std::as_bytes(std::span(values)), stream);
}
// `rows` rows of `width` bytes; pitches are the bytes from one row to the next. Any direction.
struct Rows {
  void* to = nullptr;
  std::uint64_t to_pitch = 0;
  const void* from = nullptr;
  std::uint64_t from_pitch = 0;
  std::uint64_t width = 0;
  std::uint64_t rows = 0;
};
Result<void> copy_rows(const Rows& rows, const Stream& stream);
Result<void> fill(void* to, std::uint8_t value, std::uint64_t bytes, const Stream& stream);
// On a caller's stream, a cudaStream_t.
Result<void> fill_on(void* to, std::uint8_t value, std::uint64_t bytes, void* stream);

// Work recorded once and replayed with one call.
class Graph {
 public:
  // Records what `work` puts on the stream; work returns Result<void>.
  template <class Work>
  static Result<Graph> record(const Stream& stream, Work&& work) {
    if (Result<void> begun = begin(stream); !begun) return begun.error();
    Result<void> done = std::forward<Work>(work)();
    Result<Graph> graph = end(stream);
    if (!done) return done.error();
    return graph;
  }
  Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Graph();

  Result<void> launch(const Stream& stream) const;

 private:
  explicit Graph(void* handle) : handle_(handle) {}
  static Result<void> begin(const Stream& stream);
  static Result<Graph> end(const Stream& stream);
  void* handle_ = nullptr;
};

}  // namespace fewbit::device
