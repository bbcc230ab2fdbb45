// Drawing the line.
#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace perdure::report {
namespace {

constexpr Nanoseconds kDrawEvery = std::chrono::milliseconds(100);
constexpr std::size_t kBarCells = 30;

}  // namespace

ProgressBar::ProgressBar(std::uint64_t total)
    : total_(std::max<std::uint64_t>(total, 1)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      started_(Clock::monotonic().now()) {}

void ProgressBar::show(std::uint64_t done, std::string_view what) {
  if (!terminal_) return;
  const Nanoseconds now = Clock::monotonic().now();
  if (now - last_ < kDrawEvery) return;
  last_ = now;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const auto cells = static_cast<std::size_t>(part * kBarCells);
  std::string left;
  if (part > 0.02) {
    const double spent = static_cast<double>((now - started_).count()) / 1e9;
    left = fmt::format("{:.0f} s left", spent * (1 - part) / part);
  }
  fmt::print(stderr, "\r\x1b[K[{}{}] {:3.0f} %  {}  {}", std::string(cells, '#'),
             std::string(kBarCells - cells, '.'), part * 100, what, left);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace perdure::report
