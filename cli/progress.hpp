// SPDX-License-Identifier: Apache-2.0
// A progress bar on stderr, only when that is a terminal; and the way to cancel long work.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "fewbit/quantize.hpp"

namespace fewbit::cli {

// From here on the first SIGINT, SIGTERM or SIGHUP cancels the work, which cleans up; a second one
// ends the program at once.
void catch_interrupts();
bool was_interrupted();
// "stopped after 3 of 9 bytes" of the library as "stopped by SIGINT after 3 of 9 bytes".
Error told_by_signal(Error error);
// Ends the program as the signal would have done without a handler, so that a shell's loop ends
// too.
void end_by_signal();

enum class Unit { bytes, tokens, modules };

class ProgressBar {
 public:
  ProgressBar(std::string label, Unit unit);
  ~ProgressBar();  // clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Redraws at most ten times a second. False after SIGINT, SIGTERM or SIGHUP: stop and clean up.
  bool update(std::uint64_t done, std::uint64_t total);
  // What cancelled work says, with what was done.
  Error stopped(std::string where) const;
  // As a callback of the library; the bar must outlive it.
  ProgressFn callback();

 private:
  void clear();

  using Clock = std::chrono::steady_clock;
  std::string label_;
  Unit unit_;
  bool enabled_;
  bool drawn_ = false;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace fewbit::cli
