// ServedSession: the responder's end of one session: the exported key, the connection, and the
// Responder that handles its messages. Who runs it and when it ends is the service's business.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "control/service_types.h"
#include "fabric/fabric.h"
#include "persist/responder.h"
#include "pmem/region.h"
#include "server/times.h"

namespace perdure::server {

/// What was agreed when the session was granted. Never changes.
struct SessionTerms {
  std::uint64_t id = 0;
  std::uint64_t token = 0;
  std::string pool;
  bool write = false;
  bool for_writer = false;  // it reads for one
  Epoch epoch;
  std::uint64_t writer = 0;
  std::string writer_name;
  Transport transport = Transport::Tcp;
  pmem::Range exported;
  persist::ReceiveQueue queue;
  pmem::Range persistent_buffers;  // empty: receive buffers in DRAM
  bool flushes_writes = true;      // see persist::Responder::Options
  persist::RequestHandlers handlers = persist::built_in_handlers();
  std::size_t reply_bytes_max = 64;
};

/// For the daemon's log: pool, session, and who it is.
std::string session_words(const SessionTerms& terms);

/// Threads: attach, pump, sleep, revoke and replay by one thread at a time; the others by any.
class ServedSession {
 public:
  /// `memory` is the exported range, registered on `device` or a window over what is registered
  /// there; `kept_device` is that device, if it does not outlive the session anyway, as the region
  /// does.
  ServedSession(SessionTerms terms, fabric::Device& device,
                std::shared_ptr<fabric::Device> kept_device, pmem::Region& region,
                std::unique_ptr<fabric::Memory> memory, const Clock& clock = Clock::monotonic());
  ~ServedSession();
  ServedSession(const ServedSession&) = delete;
  ServedSession& operator=(const ServedSession&) = delete;

  const SessionTerms& terms() const { return terms_; }
  /// Accepts the requester's connection such that it reaches the session's memory.
  /// Errors: those of Incoming::accept_through.
  Result<std::unique_ptr<fabric::Endpoint>> accept(fabric::Incoming& incoming, Deadline deadline) {
    return incoming.accept_through(device_, *memory_, deadline);
  }

  /// The requester has connected. Errors: those of Responder::open.
  Result<void> attach(std::unique_ptr<fabric::Endpoint> endpoint);

  /// Handles what has arrived; see Responder::pump. Requires attach.
  Result<std::size_t> pump();

  /// Sleeps until something may have arrived, until request_stop(), or for `slice`. Returns whether
  /// something may have arrived.
  bool sleep(Nanoseconds slice);

  /// Asks the running thread to end the session; it sees stopping() soon.
  void request_stop();
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

  /// Ends the connection, then takes the keys away. On success no byte of the region changes
  /// through the session any more. Harmless when repeated.
  /// Errors: SystemError: the device refused one of the two. The requester may still write: nobody
  /// else may be granted the pool before this has succeeded.
  Result<void> revoke();
  /// Applies what is left in persistent receive buffers, once. Returns how many messages that were.
  /// Requires a session that was revoked. Errors: SystemError, when the medium refused.
  Result<std::uint64_t> replay();

  control::ServiceCounters counters() const;
  control::ServiceTimes times() const { return {region_.times(), answers_.counts()}; }

  /// The exported bytes, to which the requester may write at any time.
  std::span<const std::byte> exported_bytes() const {
    return region_.bytes().subspan(terms_.exported.at, terms_.exported.length);
  }
  /// What the session's thread last found in them, and nothing before it has looked. Threads: one
  /// tells, any asks; who asks meanwhile may get some numbers of this look and some of the last.
  void tell_contents(const control::LogReport& found);
  std::optional<control::LogReport> contents() const;
  /// Whether the region that is served is still to be trusted: see Region::check. Threads: any.
  Result<void> check_medium() const { return region_.check(); }

 private:
  void publish();

  const SessionTerms terms_;
  std::shared_ptr<fabric::Device> kept_device_;  // or empty
  fabric::Device& device_;
  mutable TimedRegion region_;
  const Clock& clock_;
  TimedSample sample_;
  SharedTimes answers_;
  std::unique_ptr<fabric::Memory> memory_;
  std::unique_ptr<persist::Responder> responder_;
  std::unique_ptr<fabric::Endpoint> endpoint_;  // goes before the memory that is posted on it
  std::unique_ptr<pmem::FailureTie> tie_;       // goes before the endpoint
  bool was_attached_ = false;                   // and what came in was not replayed yet
  const int wake_fd_;
  std::atomic<bool> stopping_{false};
  // Copies of the responder's counters, for readers in other threads.
  std::array<std::atomic<std::uint64_t>, 5> published_{};
  std::array<std::atomic<std::uint64_t>, 10> contents_{};  // the fields of a LogReport
};

}  // namespace perdure::server
