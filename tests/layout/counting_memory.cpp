// SPDX-License-Identifier: Apache-2.0
#include "layout/counting_memory.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> in_use{0};
std::atomic<std::int64_t> peak{0};

void* count(void* block) {
  if (block == nullptr) return block;
  const auto bytes = static_cast<std::int64_t>(malloc_usable_size(block));
  const std::int64_t now = in_use.fetch_add(bytes) + bytes;
  std::int64_t before = peak.load();
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return block;
}

void forget(void* block) {
  if (block != nullptr) in_use.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(block)));
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the linker's names
extern "C" {
void* __real_malloc(std::size_t bytes);
void* __real_calloc(std::size_t count, std::size_t bytes);
void __real_free(void* block);
void* __wrap_malloc(std::size_t bytes) { return count(__real_malloc(bytes)); }
void* __wrap_calloc(std::size_t number, std::size_t bytes) {
  return count(__real_calloc(number, bytes));
}
void __wrap_free(void* block) {
  forget(block);
  __real_free(block);
}
}
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

void* operator new(std::size_t bytes) {
  void* const block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t /*bytes*/) noexcept { std::free(block); }

namespace fewbit::testing {

std::int64_t allocated_bytes() { return in_use.load(); }
std::int64_t peak_bytes() { return peak.load(); }
void reset_peak() { peak.store(in_use.load()); }

}  // namespace fewbit::testing
