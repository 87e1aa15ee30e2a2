// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "command.hpp"

namespace fewbit::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;  // the signal

void note_interrupt(int signal) { interrupted = signal; }

void install_handlers() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // nohup and the jobs of a script ignore some of them.
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

const char* signal_name(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

std::string amount(Unit unit, double value) {
  if (unit == Unit::bytes) return bytes_text(static_cast<std::uint64_t>(value));
  return fmt::format("{:.0f} {}", value, unit == Unit::tokens ? "tokens" : "modules");
}

int terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}
// What stands around the bar.
constexpr int text_columns = 50;

}  // namespace

void catch_interrupts() { install_handlers(); }

bool was_interrupted() { return interrupted != 0; }

Error told_by_signal(Error error) {
  constexpr std::string_view begin = "stopped ";
  if (interrupted == 0 || !error.what.starts_with(begin)) return error;
  error.what = fmt::format("stopped by {} {}", signal_name(interrupted),
                           std::string_view(error.what).substr(begin.size()));
  return error;
}

void end_by_signal() {
  const int signal = interrupted != 0 ? interrupted : SIGTERM;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

ProgressBar::ProgressBar(std::string label, Unit unit)
    : label_(std::move(label)),
      unit_(unit),
      enabled_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_ - std::chrono::seconds(1)) {
  catch_interrupts();
}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::clear() {
  if (drawn_) print_err("\r\033[K");
  drawn_ = false;
}

bool ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  done_ = done;
  total_ = total;
  if (interrupted != 0) return false;
  const Clock::time_point now = Clock::now();
  if (done >= total) clear();  // what comes next may go to the same terminal
  if (!enabled_ || done >= total || total == 0 || now - last_ < std::chrono::milliseconds(100))
    return true;
  last_ = now;
  drawn_ = true;
  const int width = std::clamp(terminal_columns() - text_columns, 0, 28);
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const auto filled = static_cast<int>(share * width);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  print_err("\r\033[K{} [{:=<{}}{: <{}}] {:3.0f} %  {}/s", label_, "", filled, "", width - filled,
            share * 100, amount(unit_, rate));
  // The first pieces tell little of the rest.
  if (seconds > 1 && rate > 0)
    print_err("  {:.0f} s left", static_cast<double>(total - done) / rate);
  std::fflush(stderr);
  return true;
}

Error ProgressBar::stopped(std::string where) const {
  return {ErrorCode::cancelled,
          fmt::format("stopped after {} of {}", done_, amount(unit_, static_cast<double>(total_))),
          std::move(where)};
}

ProgressFn ProgressBar::callback() {
  return [this](std::uint64_t done, std::uint64_t total) { return update(done, total); };
}

}  // namespace fewbit::cli
