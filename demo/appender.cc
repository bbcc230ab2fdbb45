// Appending and taking note of what was reached.
#include "demo/appender.h"

#include "core/assert.h"
#include "core/try.h"
#include "testing/process.h"

namespace perdure::demo {
namespace {

constexpr std::uint32_t kRoundsBeforeSleep = 200;
constexpr Nanoseconds kSleepSlice = std::chrono::milliseconds(1);

}  // namespace

Appender::Appender(log::ReplicatedLog& log, const RecordText& text, const Clock& clock,
                   std::uint64_t first)
    : log_(log),
      text_(text),
      clock_(clock),
      flights_(kWindowMax),
      appended_(first),
      durable_(first),
      committed_(first) {}

void Appender::measure_into(Latencies& latencies) {
  PERDURE_ASSERT(committed_ == appended_);
  latencies_ = &latencies;
}

Result<void> Appender::append(std::size_t window) {
  PERDURE_ASSERT(window >= 1);
  PERDURE_ASSERT(window <= kWindowMax);
  while (appended_ - committed_ >= window) PERDURE_TRY_VOID(make_progress());
  const Nanoseconds begun = clock_.now();
  PERDURE_TRY(ticket, log_.append(text_.record(appended_)));
  flights_[appended_ % kWindowMax] = {ticket, begun};
  ++appended_;
  take_answers();
  return {};
}

Result<void> Appender::drain() {
  while (committed_ < appended_) PERDURE_TRY_VOID(make_progress());
  return {};
}

Result<void> Appender::make_progress() {
  PERDURE_TRY_VOID(test::InterruptGuard::check());
  const std::uint64_t before = durable_ + committed_;
  // Sleeping would miss the moment when what is durable is committed, so only before that.
  if (++idle_rounds_ > kRoundsBeforeSleep && durable_ == committed_) {
    const auto woken = log_.wait(flight(committed_).ticket, Level::Durable, kSleepSlice);
    if (!woken.ok() && woken.code() != ErrorCode::TimedOut) return woken.error();
  } else {
    PERDURE_TRY_VOID(log_.poll());
  }
  take_answers();
  if (durable_ + committed_ != before) idle_rounds_ = 0;
  return {};
}

void Appender::take_answers() {
  const Nanoseconds now = clock_.now();
  while (durable_ < appended_ && log_.reached(flight(durable_).ticket, Level::Durable)) {
    if (latencies_ != nullptr) latencies_->durable.add(now - flight(durable_).begun);
    ++durable_;
  }
  while (committed_ < durable_ && log_.reached(flight(committed_).ticket, Level::Committed)) {
    if (latencies_ != nullptr) latencies_->committed.add(now - flight(committed_).begun);
    ++committed_;
  }
  if (look_) look_();
}

}  // namespace perdure::demo
