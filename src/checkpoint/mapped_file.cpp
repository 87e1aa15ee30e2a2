// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <utility>

#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/file_kind.hpp"
#include "checkpoint/system_error.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

std::uintptr_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

// What a fault maps at once, around the page that was touched (Linux: fault_around_bytes).
constexpr std::uintptr_t window_bytes = 1 << 16;

// The windows that [offset, offset + size) touches, cut to the mapping.
std::span<std::byte> windows(std::span<const std::byte> bytes, std::uint64_t offset,
                             std::uint64_t size) {
  const std::uint64_t begin = std::min<std::uint64_t>(offset, bytes.size());
  const auto range = bytes.subspan(begin, std::min<std::uint64_t>(size, bytes.size() - begin));
  if (range.empty()) return {};
  const std::uintptr_t base = address_of(bytes.data());
  const std::uintptr_t from = address_of(range.data());
  const std::uintptr_t first = std::max(from / window_bytes * window_bytes, base);
  const std::uintptr_t last =
      std::min(round_up(from + range.size(), window_bytes), base + bytes.size());
  // madvise takes a writable pointer but changes no data.
  return {const_cast<std::byte*>(bytes.data()) + (first - base), last - first};
}

// Of all pages that hold some of them.
void advise_touched(std::span<const std::byte> bytes, int advice) {
  if (bytes.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t before = address_of(bytes.data()) % page;
  // madvise takes a writable pointer but changes no data.
  auto* first = const_cast<std::byte*>(bytes.data()) - before;
  ::madvise(first, bytes.size() + before, advice);
}

// Where files are mapped, in memory that a signal handler may read. A slot whose begin is 0 is
// free.
struct Mapped {
  std::atomic<std::uintptr_t> begin = 0;
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<const char*> path = nullptr;
};
constexpr std::size_t most_noted = 4096;
std::array<Mapped, most_noted> mapped;

void note(std::span<const std::byte> bytes, const char* path) {
  for (Mapped& slot : mapped) {
    std::uintptr_t free = 0;
    if (!slot.begin.compare_exchange_strong(free, address_of(bytes.data()))) continue;
    slot.path = path;
    slot.end = address_of(bytes.data() + bytes.size());
    return;
  }
}

void forget(std::span<const std::byte> bytes) {
  for (Mapped& slot : mapped) {
    if (slot.begin != address_of(bytes.data())) continue;
    slot.end = 0;
    slot.path = nullptr;
    slot.begin = 0;
    return;
  }
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {
  if (!bytes_.empty()) note(bytes_, path_.c_str());
}

const char* MappedFile::path_at(const void* address) {
  for (const Mapped& slot : mapped) {
    if (slot.begin <= address_of(address) && address_of(address) < slot.end) return slot.path;
  }
  return nullptr;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget(bytes_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  struct stat status = {};
  // Before open(), which waits on a FIFO and acts on some devices.
  if (::stat(path.c_str(), &status) != 0) return system_error("open", errno, path);
  FEWBIT_TRY(expect_regular(status.st_mode, path));
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return system_error("open", errno, path);
  if (::fstat(file.get(), &status) != 0) return system_error("read the size", errno, path);
  FEWBIT_TRY(expect_regular(status.st_mode, path));

  std::span<const std::byte> bytes;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > std::numeric_limits<std::size_t>::max()) {
    return Error{ErrorCode::limit, fmt::format("{} bytes do not fit the address space", size),
                 path.string()};
  }
  if (size != 0) {
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) return system_error("map", errno, path);
    bytes = {static_cast<const std::byte*>(memory), static_cast<std::size_t>(size)};
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, bytes));
}

// Advice only: when the system refuses it, nothing is lost but speed.
void MappedFile::release(std::uint64_t offset, std::uint64_t size) const {
  const auto range = windows(bytes_, offset, size);
  if (!range.empty()) ::madvise(range.data(), range.size(), MADV_DONTNEED);
}

void MappedFile::will_read(std::span<const std::byte> bytes) {
  advise_touched(bytes, MADV_WILLNEED);
}

void MappedFile::map_pages([[maybe_unused]] std::span<const std::byte> bytes) {
#if defined(MADV_POPULATE_READ)
  advise_touched(bytes, MADV_POPULATE_READ);
#endif
}

}  // namespace fewbit
