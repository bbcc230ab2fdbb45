// The responder's end of one session: see session.h.
#include "server/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/try.h"

namespace perdure::server {
namespace {

// Between two looks at a connection that has nothing to wait on.
constexpr Nanoseconds kPollingNap = std::chrono::milliseconds{1};

}  // namespace

std::string session_words(const SessionTerms& terms) {
  const std::string who = terms.writer_name.empty() ? "" : fmt::format(" '{}'", terms.writer_name);
  return fmt::format("pool '{}': session {:016x} of {}{}{}", terms.pool, terms.id,
                     terms.write ? "writer" : "a reader", who,
                     terms.write ? fmt::format(" of epoch {}", terms.epoch.value) : "");
}

ServedSession::ServedSession(SessionTerms terms, fabric::Device& device,
                             std::shared_ptr<fabric::Device> kept_device, pmem::Region& region,
                             std::unique_ptr<fabric::Memory> memory, const Clock& clock)
    : terms_(std::move(terms)),
      kept_device_(std::move(kept_device)),
      device_(device),
      region_(region, clock),
      clock_(clock),
      sample_(region.domain()),
      memory_(std::move(memory)),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

ServedSession::~ServedSession() {
  (void)revoke();  // whoever needs to know has asked before
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

Result<void> ServedSession::attach(std::unique_ptr<fabric::Endpoint> endpoint) {
  PERDURE_ASSERT(endpoint_ == nullptr && memory_ != nullptr);
  endpoint_ = std::move(endpoint);
  was_attached_ = true;
  PERDURE_TRY_VOID(region_.check());  // persistent receive buffers are written to
  // What goes into a page that is not the medium's any more must not be acknowledged, or read.
  tie_ = region_.cut_on_failure(endpoint_->cut_switch());
  persist::Responder::Options options;
  options.exported = terms_.exported;
  options.session = static_cast<std::uint32_t>(terms_.id);
  options.queue = terms_.queue;
  options.may_write = terms_.write;
  options.flushes_writes = terms_.flushes_writes;
  options.persistent_buffers = terms_.persistent_buffers;
  options.handlers = terms_.handlers;
  options.reply_bytes_max = terms_.reply_bytes_max;
  PERDURE_TRY(responder, persist::Responder::open(*endpoint_, device_, region_, options));
  responder_ = std::move(responder);
  return {};
}

Result<std::size_t> ServedSession::pump() {
  PERDURE_ASSERT(responder_ != nullptr);
  const bool timed = sample_.next();
  const Nanoseconds begin = timed ? clock_.now() : Nanoseconds{0};
  auto handled = responder_->pump();
  if (!handled.ok() || *handled != 0) {
    if (timed) answers_.add(clock_.now() - begin);
    publish();
  }
  if (!handled.ok() && handled.code() == ErrorCode::Disconnected) {
    // Why, the fabric alone knows; and it knows no session.
    const std::string reason = endpoint_->lost_reason();
    if (!reason.empty()) {
      return Error{ErrorCode::Disconnected,
                   fmt::format("{} ({})", handled.error().message, reason)};
    }
  }
  return handled;
}

bool ServedSession::sleep(Nanoseconds slice) {
  if (!endpoint_->arm()) return true;
  std::array<pollfd, 2> waited{{{wake_fd_, POLLIN, 0}, {endpoint_->wait_fd(), POLLIN, 0}}};
  if (endpoint_->wait_fd() < 0) slice = std::min(slice, kPollingNap);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(slice);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>((slice - seconds).count())};
  // Interrupted, timed out or woken alike: the caller polls and looks whether it should stop.
  const int ready = ::ppoll(waited.data(), waited.size(), &timeout, nullptr);
  return ready > 0 && waited[1].revents != 0;
}

void ServedSession::request_stop() {
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // Can only fail when the counter is full, and then the sleeper is awake already.
  [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
}

/// First the connection, so that no write is half executed when its key goes. Either alone would
/// keep a requester with a connection of its own out; but messages need no key, and what was not
/// taken away must not be given up here, or nobody could ask for it again.
Result<void> ServedSession::revoke() {
  if (endpoint_ != nullptr) PERDURE_TRY_VOID(endpoint_->sever());
  tie_.reset();
  publish();
  if (memory_ != nullptr) PERDURE_TRY_VOID(memory_->deregister());
  responder_.reset();
  endpoint_.reset();
  memory_.reset();
  kept_device_.reset();
  return {};
}

Result<std::uint64_t> ServedSession::replay() {
  PERDURE_ASSERT(memory_ == nullptr);
  const bool was_attached = std::exchange(was_attached_, false);
  if (!was_attached || terms_.persistent_buffers.length == 0) return std::uint64_t{0};
  // Nothing is stored in what failed, or is another owner's by now.
  PERDURE_TRY_VOID(region_.check());
  // The requester may count on messages that arrived in persistent buffers and were not handled.
  return persist::replay_messages(region_, terms_.exported, terms_.persistent_buffers,
                                  terms_.queue);
}

void ServedSession::publish() {
  if (responder_ == nullptr) return;
  const persist::ResponderCounters& now = responder_->counters();
  const std::array<std::uint64_t, 5> values{now.messages, now.refused, now.copied_bytes,
                                            now.flush_calls, now.acks};
  for (std::size_t i = 0; i < values.size(); ++i) {
    published_[i].store(values[i], std::memory_order_relaxed);
  }
}

void ServedSession::tell_contents(const control::LogReport& found) {
  const std::array<std::uint64_t, 10> values{
      found.log_id,          found.epoch.value,      found.head.value, found.tail.value,
      found.committed.value, found.ring_bytes,       found.replicas,   found.quorum,
      found.whole ? 1U : 0U, found.removed ? 1U : 0U};
  for (std::size_t i = 0; i < values.size(); ++i) {
    contents_[i].store(values[i], std::memory_order_relaxed);
  }
}

std::optional<control::LogReport> ServedSession::contents() const {
  const auto value = [&](std::size_t i) { return contents_[i].load(std::memory_order_relaxed); };
  control::LogReport found;
  found.log_id = value(0);
  if (found.log_id == 0) return std::nullopt;
  found.epoch = Epoch{static_cast<std::uint32_t>(value(1))};
  found.head = Lsn{value(2)};
  found.tail = std::max(Lsn{value(3)}, found.head);
  found.committed = std::max(Lsn{value(4)}, found.head);
  found.ring_bytes = value(5);
  found.replicas = value(6);
  found.quorum = value(7);
  found.whole = value(8) != 0;
  found.removed = value(9) != 0;
  return found;
}

control::ServiceCounters ServedSession::counters() const {
  const auto value = [&](std::size_t i) { return published_[i].load(std::memory_order_relaxed); };
  control::ServiceCounters counters;
  counters.messages = value(0);
  counters.refused_messages = value(1);
  counters.copied_bytes = value(2);
  counters.flush_calls = value(3);
  counters.acks = value(4);
  return counters;
}

}  // namespace perdure::server
