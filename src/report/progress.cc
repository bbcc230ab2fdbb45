// Drawing the line, or writing one.
#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace perdure::report {
namespace {

constexpr Nanoseconds kDrawEvery = std::chrono::milliseconds(100);
constexpr std::size_t kBarCells = 30;

}  // namespace

ProgressBar::ProgressBar(std::uint64_t total, std::FILE* to, const Clock& clock)
    : total_(std::max<std::uint64_t>(total, 1)),
      to_(to),
      clock_(clock),
      terminal_(::isatty(::fileno(to)) == 1),
      pace_(clock),
      started_(clock.now()) {}

void ProgressBar::show(std::uint64_t done, std::string_view what) {
  const Nanoseconds now = clock_.now();
  if (terminal_ ? now - last_ < kDrawEvery : !pace_.due()) return;
  last_ = now;
  const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  std::string left;
  if (part > 0.02) {
    const double spent = to_seconds(now - started_);
    left = fmt::format("{:.0f} s left", spent * (1 - part) / part);
  }
  if (terminal_) {
    const auto cells = static_cast<std::size_t>(part * kBarCells);
    fmt::print(to_, "\r\x1b[K[{}{}] {:3.0f} %  {}  {}", std::string(cells, '#'),
               std::string(kBarCells - cells, '.'), part * 100, what, left);
    drawn_ = true;
  } else {
    fmt::print(to_, "{:.0f} %: {}{}{}\n", part * 100, what, left.empty() ? "" : ", ", left);
  }
  std::fflush(to_);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  fmt::print(to_, "\r\x1b[K");
  std::fflush(to_);
  drawn_ = false;
}

}  // namespace perdure::report
