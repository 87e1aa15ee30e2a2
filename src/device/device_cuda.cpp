// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "device/device.hpp"

namespace fewbit::device {
namespace {

cudaStream_t stream_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

ErrorCode code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::limit;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorNoKernelImageForDevice:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::io;
  }
}

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

Result<void> check(int status, std::string where) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // an error of a launch would be reported again by the next call
  return Error{code_of(error),
               std::string("CUDA: ") + cudaGetErrorName(error) + ", " + cudaGetErrorString(error),
               std::move(where)};
}

Result<int> count() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return 0;
  }
  FEWBIT_TRY(check(status, "counting devices"));
  return devices;
}

std::vector<std::string> built_for() { return {"sm_90a", "sm_120a"}; }

Result<DeviceInfo> info(int index) {
  const std::string where = "CUDA device " + std::to_string(index);
  cudaDeviceProp properties = {};
  FEWBIT_TRY(check(cudaGetDeviceProperties(&properties, index), where));
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.name = properties.name;
  device.compute_capability = properties.major * 10 + properties.minor;
  device.sm_count = properties.multiProcessorCount;
  device.shared_memory_bytes = properties.sharedMemPerBlockOptin;
  device.memory_bytes = properties.totalGlobalMem;
  return device;
}

Result<void> use(int index) {
  return check(cudaSetDevice(index), "CUDA device " + std::to_string(index));
}

Result<Stream> Stream::create() {
  cudaStream_t stream = nullptr;
  FEWBIT_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
  return Stream(stream);
}

Stream::~Stream() {
  if (handle_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(handle_));
}

Result<void> Stream::synchronize() const {
  return check(cudaStreamSynchronize(static_cast<cudaStream_t>(handle_)), "work on a stream");
}

Result<Event> Event::create() {
  cudaEvent_t event = nullptr;
  FEWBIT_TRY(check(cudaEventCreate(&event), "making an event"));
  return Event(event);
}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(handle_));
}

Result<void> Event::record(const Stream& stream) {
  return check(cudaEventRecord(static_cast<cudaEvent_t>(handle_), stream_of(stream)),
               "recording an event");
}

Result<void> Event::block(const Stream& stream) const {
  return check(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(handle_), 0),
               "waiting for an event on a stream");
}

Result<void> Event::synchronize() const {
  return check(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)), "waiting for an event");
}

Result<float> Event::elapsed_until(const Event& later) const {
  float milliseconds = 0.0F;
  FEWBIT_TRY(check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(handle_),
                                        static_cast<cudaEvent_t>(later.handle_)),
                   "time between events"));
  return milliseconds;
}

Result<Buffer> Buffer::allocate(std::uint64_t bytes, const Stream& stream) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  FEWBIT_TRY(check(cudaMallocAsync(&data, bytes, stream_of(stream)),
                   "allocating " + bytes_text(bytes) + " of device memory"));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = bytes;
  buffer.stream_ = stream.handle();
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) cudaFreeAsync(data_, static_cast<cudaStream_t>(stream_));
}

Result<void> copy_to_device(void* to, std::span<const std::byte> from, const Stream& stream) {
  return check(
      cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_of(stream)),
      "copying " + bytes_text(from.size()) + " to the device");
}

Result<void> copy_to_host(std::span<std::byte> to, const void* from, const Stream& stream) {
  return check(
      cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_of(stream)),
      "copying " + bytes_text(to.size()) + " to the host");
}

Result<void> copy_on_device(void* to, const void* from, std::uint64_t bytes, const Stream& stream) {
  return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)),
               "copying " + bytes_text(bytes) + " on the device");
}

Result<void> copy_rows(const Rows& rows, const Stream& stream) {
  return check(cudaMemcpy2DAsync(rows.to, rows.to_pitch, rows.from, rows.from_pitch, rows.width,
                                 rows.rows, cudaMemcpyDefault, stream_of(stream)),
               "copying " + std::to_string(rows.rows) + " rows of " + bytes_text(rows.width));
}

Result<void> fill(void* to, std::uint8_t value, std::uint64_t bytes, const Stream& stream) {
  return fill_on(to, value, bytes, stream.handle());
}

Result<void> fill_on(void* to, std::uint8_t value, std::uint64_t bytes, void* stream) {
  return check(cudaMemsetAsync(to, value, bytes, static_cast<cudaStream_t>(stream)),
               "filling " + bytes_text(bytes) + " of device memory");
}

Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}

Result<void> Graph::begin(const Stream& stream) {
  return check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
               "recording a graph");
}

Result<Graph> Graph::end(const Stream& stream) {
  cudaGraph_t graph = nullptr;
  FEWBIT_TRY(check(cudaStreamEndCapture(stream_of(stream), &graph), "recording a graph"));
  cudaGraphExec_t ready = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  FEWBIT_TRY(check(status, "making a recorded graph ready"));
  return Graph(ready);
}

Result<void> Graph::launch(const Stream& stream) const {
  return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), stream_of(stream)),
               "replaying a graph");
}

}  // namespace fewbit::device
