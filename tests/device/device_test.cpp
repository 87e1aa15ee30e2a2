// SPDX-License-Identifier: Apache-2.0
// The device layer: what it does on a GPU, and what it says where there is none.
#include "device/device.hpp"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace fewbit::device {
namespace {

// Whether this build and machine have a device; a build without CUDA says how to get one.
bool has_device() {
  const Result<int> devices = count();
  if (!devices) {
    EXPECT_EQ(devices.error().code, ErrorCode::unsupported);
    EXPECT_EQ(devices.error().message(),
              "counting devices: this build of fewbit has no CUDA code: configure it with "
              "FEWBIT_CUDA=ON");
  }
  return devices && *devices > 0;
}

TEST(Device, WithoutOneEveryCallIsAnErrorWithItsPlace) {
  if (has_device()) GTEST_SKIP() << "this machine has a CUDA device";
  const Result<DeviceInfo> found = info(3);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  EXPECT_EQ(found.error().where, "CUDA device 3");
  const Result<Stream> stream = Stream::create();
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::unsupported);
  EXPECT_EQ(stream.error().where, "making a stream");
  const Result<void> used = use(0);
  ASSERT_FALSE(used);
  EXPECT_EQ(used.error().where, "CUDA device 0");
  EXPECT_FALSE(Event::create());
}

TEST(Device, StatusZeroIsNoError) {
  EXPECT_TRUE(check(0, "nothing"));
  EXPECT_FALSE(check(1, "something"));
}

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(DeviceTest, InfoHoldsTheFiguresOfTheCard) {
  const Result<DeviceInfo> found = info(0);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->kind, DeviceKind::cuda);
  EXPECT_FALSE(found->name.empty());
  EXPECT_GE(found->compute_capability, 50);
  EXPECT_GT(found->sm_count, 0);
  EXPECT_GE(found->shared_memory_bytes, std::uint64_t{48} * 1024);
  EXPECT_GT(found->memory_bytes, std::uint64_t{1} << 30);
}

TEST_F(DeviceTest, ADeviceThatIsNotThereIsAnError) {
  const Result<DeviceInfo> found = info(1000);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  EXPECT_EQ(found.error().where, "CUDA device 1000");
}

TEST_F(DeviceTest, CopiesArriveWhole) {
  Result<Stream> stream = Stream::create();
  ASSERT_TRUE(stream);
  std::vector<std::byte> from(100'003);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256);
  Result<Buffer> a = Buffer::allocate(from.size(), *stream);
  Result<Buffer> b = Buffer::allocate(from.size(), *stream);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a->data()) % 256, 0U);
  ASSERT_TRUE(copy_to_device(a->data(), from, *stream));
  ASSERT_TRUE(fill(b->data(), 0xAB, b->size(), *stream));
  ASSERT_TRUE(copy_on_device(b->data() + 1, a->data(), from.size() - 1, *stream));
  std::vector<std::byte> to(from.size());
  ASSERT_TRUE(copy_to_host(to, b->data(), *stream));
  ASSERT_TRUE(stream->synchronize());
  EXPECT_EQ(to[0], std::byte{0xAB});
  EXPECT_TRUE(std::equal(to.begin() + 1, to.end(), from.begin()));
}

TEST_F(DeviceTest, RowsKeepTheirPitch) {
  Result<Stream> stream = Stream::create();
  ASSERT_TRUE(stream);
  std::vector<std::uint8_t> from(5 * 16);
  std::iota(from.begin(), from.end(), std::uint8_t{0});
  Result<Buffer> buffer = Buffer::allocate(5 * 32, *stream);
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(fill(buffer->data(), 0xFF, buffer->size(), *stream));
  ASSERT_TRUE(copy_rows({.to = buffer->data(),
                         .to_pitch = 32,
                         .from = from.data(),
                         .from_pitch = 16,
                         .width = 10,
                         .rows = 5},
                        *stream));
  std::vector<std::uint8_t> to(5 * 32);
  ASSERT_TRUE(copy_to_host(std::as_writable_bytes(std::span(to)), buffer->data(), *stream));
  ASSERT_TRUE(stream->synchronize());
  for (std::size_t row = 0; row < 5; ++row) {
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(to[row * 32 + i], i < 10 ? from[row * 16 + i] : 0xFF) << row << " " << i;
    }
  }
}

TEST_F(DeviceTest, MemoryThatTheCardLacksIsALimit) {
  Result<Stream> stream = Stream::create();
  ASSERT_TRUE(stream);
  const Result<Buffer> buffer = Buffer::allocate(std::uint64_t{1} << 50, *stream);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::limit);
  EXPECT_EQ(buffer.error().where, "allocating 1125899906842624 bytes of device memory");
  const Result<Buffer> small = Buffer::allocate(1024, *stream);  // and the device still works
  EXPECT_TRUE(small);
  EXPECT_TRUE(stream->synchronize());
}

TEST_F(DeviceTest, ARecordedGraphRunsAtEachLaunch) {
  Result<Stream> stream = Stream::create();
  ASSERT_TRUE(stream);
  Result<Buffer> buffer = Buffer::allocate(2, *stream);
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(fill(buffer->data(), 1, 2, *stream));
  ASSERT_TRUE(stream->synchronize());
  const Result<Graph> graph = Graph::record(
      *stream, [&] { return copy_on_device(buffer->data() + 1, buffer->data(), 1, *stream); });
  ASSERT_TRUE(graph) << graph.error().message();
  for (const std::uint8_t value : {std::uint8_t{5}, std::uint8_t{9}}) {
    ASSERT_TRUE(fill(buffer->data(), value, 1, *stream));
    ASSERT_TRUE(graph->launch(*stream));
    std::array<std::byte, 2> to = {};
    ASSERT_TRUE(copy_to_host(to, buffer->data(), *stream));
    ASSERT_TRUE(stream->synchronize());
    EXPECT_EQ(to[1], static_cast<std::byte>(value));
  }
}

TEST_F(DeviceTest, EventsOrderStreamsAndMeasureTime) {
  Result<Stream> first = Stream::create();
  Result<Stream> second = Stream::create();
  Result<Event> begin = Event::create();
  Result<Event> end = Event::create();
  ASSERT_TRUE(first && second && begin && end);
  const std::uint64_t bytes = std::uint64_t{256} << 20;
  Result<Buffer> buffer = Buffer::allocate(bytes, *first);
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(begin->record(*first));
  ASSERT_TRUE(fill(buffer->data(), 1, bytes, *first));
  ASSERT_TRUE(fill(buffer->data(), 2, bytes, *first));
  ASSERT_TRUE(end->record(*first));
  ASSERT_TRUE(end->block(*second));
  std::array<std::byte, 1> last = {};
  ASSERT_TRUE(copy_to_host(last, buffer->data() + bytes - 1, *second));
  ASSERT_TRUE(second->synchronize());
  EXPECT_EQ(last[0], std::byte{2});
  const Result<float> milliseconds = begin->elapsed_until(*end);
  ASSERT_TRUE(milliseconds);
  EXPECT_GT(*milliseconds, 0.0F);
}

}  // namespace
}  // namespace fewbit::device
