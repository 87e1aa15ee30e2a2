// SPDX-License-Identifier: Apache-2.0
// Memory that counts how often each of its pages is come back to: only the pages last read are
// readable, any other faults and is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fewbit::test {

// One at a time in a process, read by one thread at a time.
class WatchedPages {
 public:
  // Pages that stay readable, the one read longest ago is closed first. Together they are no larger
  // than a first-level cache, so bytes read again from an open page cost no memory bandwidth.
  static constexpr std::size_t open_pages = 12;

  explicit WatchedPages(std::size_t bytes);
  WatchedPages(const WatchedPages&) = delete;
  WatchedPages& operator=(const WatchedPages&) = delete;
  ~WatchedPages();

  // Writable until watch() is called.
  std::span<std::byte> memory() { return memory_; }
  static std::size_t page_bytes();

  // From here on reads are counted, and writes end the process.
  void watch();
  // Opens all pages again and returns how often each was opened.
  std::vector<int> stop();

 private:
  std::span<std::byte> memory_;
};

}  // namespace fewbit::test
