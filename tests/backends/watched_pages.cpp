// SPDX-License-Identifier: Apache-2.0
#include "backends/watched_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

namespace fewbit::test {
namespace {

// What the signal handler works on.
struct Watch {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::size_t page = 0;
  int* counts = nullptr;
  std::array<std::byte*, WatchedPages::open_pages> open{};
  std::size_t next = 0;
};
Watch watch_state;
struct sigaction previous_action;

void close_oldest_and_keep(std::byte* page) {
  std::byte*& slot = watch_state.open[watch_state.next];
  if (slot != nullptr) mprotect(slot, watch_state.page, PROT_NONE);
  slot = page;
  watch_state.next = (watch_state.next + 1) % watch_state.open.size();
}

void on_fault(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const auto begin = reinterpret_cast<std::uintptr_t>(watch_state.begin);
  const std::size_t index = (address - begin) / watch_state.page;
  std::byte* page = watch_state.begin + index * watch_state.page;
  bool is_open = address < begin || address - begin >= watch_state.bytes;
  for (const std::byte* open : watch_state.open) is_open = is_open || open == page;
  // A fault that opening a page doesn't mend: a write, or an address elsewhere.
  if (is_open || mprotect(page, watch_state.page, PROT_READ) != 0) {
    sigaction(SIGSEGV, &previous_action, nullptr);
    return;
  }
  ++watch_state.counts[index];
  close_oldest_and_keep(page);
}

}  // namespace

std::size_t WatchedPages::page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

WatchedPages::WatchedPages(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

WatchedPages::~WatchedPages() {
  if (watch_state.begin == memory_.data()) stop();
  munmap(memory_.data(), memory_.size());
}

void WatchedPages::watch() {
  const std::size_t page = page_bytes();
  watch_state = {.begin = memory_.data(),
                 .bytes = memory_.size(),
                 .page = page,
                 .counts = new int[(memory_.size() + page - 1) / page]()};
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &previous_action);
  mprotect(memory_.data(), memory_.size(), PROT_NONE);
}

std::vector<int> WatchedPages::stop() {
  mprotect(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE);
  sigaction(SIGSEGV, &previous_action, nullptr);
  const std::size_t pages = (watch_state.bytes + watch_state.page - 1) / watch_state.page;
  std::vector<int> counts(watch_state.counts, watch_state.counts + pages);
  delete[] watch_state.counts;
  watch_state = {};
  return counts;
}

}  // namespace fewbit::test
