// LogWriter: one log that many threads append to at once. Their records are gathered and leave
// together, as databases commit in groups: while some are in flight the next ones gather.
//
//   auto writer = perdure::LogWriter::open({.peers = {"127.0.0.1:7470"}, .pool = "orders"});
//   auto ticket = writer->commit(bytes);  // from any thread; returns when it is committed
#pragma once

#include <perdure/log.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <vector>

namespace perdure {

struct LogWriterOptions {
  /// A thread of the writer brings records on their way and notices what became of them. Without it
  /// the callers of commit do that, one for all of them at a time, which needs no second core; the
  /// first submit starts a thread all the same, which does it for what nobody waits for. A writer
  /// whose callers only commit has no thread then.
  bool own_thread = false;
  /// Records that are not finished, at a time. More: QueueFull.
  std::size_t records_max = 4096;
};

/// What became of a record that was submitted with a tag.
struct FinishedRecord {
  std::uint64_t tag = 0;
  Result<Ticket> outcome;
};

/// Threads: any number of callers, but for moving, closing and destruction: one, when no other call
/// runs.
/// Order: records of one thread are in the log in the order of its calls; all have one order, that
/// of the LSNs.
/// Processes: as for Log. Where memory runs out while records are brought on, the process ends:
/// nobody would know what became of those of other callers.
class LogWriter {
 public:
  /// Errors: those of Log::open.
  static Result<LogWriter> open(LogOptions log, LogWriterOptions options = {});
  LogWriter(LogWriter&&) noexcept;
  LogWriter& operator=(LogWriter&&) noexcept;
  ~LogWriter();  // close(1 s), if it was not called

  /// Appends the record and waits until it has reached `level`.
  ///
  /// Requires  1 .. LogOptions::record_bytes_max bytes; Durable (or what the log was opened for)
  ///           or Committed.
  /// Errors    those of Log::append, QueueFull, and TimedOut while it still waits its turn: nothing
  ///           was appended. OutcomeUnknown: it was, and the time is over, the quorum lost or
  ///           another writer has taken over; recovery decides. Unsupported (the level).
  ///           While the staging memory is full a record waits its turn, and nobody else is held up
  ///           by it.
  /// Cost      of a caller that is alone: some locks, and an allocation if the answer takes long.
  /// Of
  ///           many one does the work of all: an allocation, some locks; while one does, each of
  ///           the others gives up its processor, for LogOptions::spin at most, before it sleeps.
  Result<Ticket> commit(std::span<const std::byte> record, Level level = Level::Committed,
                        std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// The same for a record whose bytes lie in several places.
  Result<Ticket> commit(std::span<const std::span<const std::byte>> pieces,
                        Level level = Level::Committed,
                        std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Writes a record into the room that it is given, and returns how many of its first bytes it is.
  using Write = std::function<std::size_t(std::span<std::byte> room)>;
  /// The same for a record of at most `bytes` bytes that `write` puts where it is sent from: no
  /// copy is made of it. It is called at most once, when the record's turn has come, by a thread
  /// that brings records on, maybe another one; it must not wait, throw, nor call this writer.
  /// Errors: those of commit; InvalidArgument also: it says more than `bytes`, or has thrown.
  Result<Ticket> commit_in_place(std::uint64_t bytes, const Write& write,
                                 Level level = Level::Committed,
                                 std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Called once, by a thread that brings records on, with what commit would return. It must not
  /// wait, nor throw, nor call this writer.
  using Done = std::function<void(const Result<Ticket>&)>;
  /// Copies the record and returns at once; what commit would return comes later, soon after
  /// `timeout` at the latest, without any further call. The first one starts the writer's thread.
  /// Errors: QueueFull, Unsupported (the level), InvalidArgument (closed, or in a child of fork),
  /// SystemError (no thread can be started): it will not be appended, and `done` not be called.
  Result<void> submit(std::span<const std::byte> record, Done done, Level level = Level::Committed,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30));
  Result<void> submit(std::span<const std::span<const std::byte>> pieces, Done done,
                      Level level = Level::Committed,
                      std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// The same by a future, which has the errors, too.
  std::future<Result<Ticket>> submit(std::span<const std::byte> record,
                                     Level level = Level::Committed,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(30));
  std::future<Result<Ticket>> submit(std::span<const std::span<const std::byte>> pieces,
                                     Level level = Level::Committed,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// The same for an event loop: completion_fd becomes readable, take_completed says what of.
  Result<void> submit_tagged(std::span<const std::byte> record, std::uint64_t tag,
                             Level level = Level::Committed,
                             std::chrono::milliseconds timeout = std::chrono::seconds(30));
  Result<void> submit_tagged(std::span<const std::span<const std::byte>> pieces, std::uint64_t tag,
                             Level level = Level::Committed,
                             std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// An eventfd: readable while take_completed has something. It is the writer's; do not read it.
  /// What is not taken is kept, without a limit.
  int completion_fd() const;
  /// At most so many, in the order in which they were finished.
  std::vector<FinishedRecord> take_completed(std::size_t max = SIZE_MAX);

  /// Brings records on without waiting for answers, if nobody else does; nobody has to call it. It
  /// does not wait. With a timeout it also does what Log::poll does with one, and may take this
  /// long: it brings on replicas that are back (LogOptions::reconnect), measures connections again,
  /// or asks, with the quorum lost, who has taken over.
  void poll(std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

  /// Calls `use` with the log, while no record is brought on: to trim it, repair it, look at it.
  /// What would wait for that to end (with_log, commit, close) is refused inside of it.
  /// Errors: InvalidArgument (moved from, in a child of fork, inside of `use`): it is not called.
  Result<void> with_log(const std::function<void(Log&)>& use);

  /// Takes no more records, waits until those that were taken are finished, closes the log, and
  /// ends the writer's thread. That may be asking who has taken over, for 1 s, or at bringing back
  /// a replica for half a second: that is waited for, too. Errors: TimedOut (of the others, those
  /// that were appended end as OutcomeUnknown), those of Log::close.
  Result<void> close(std::chrono::milliseconds timeout = std::chrono::seconds(5));

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit LogWriter(std::unique_ptr<State, Delete> state);
  Result<void> usable() const;
  std::unique_ptr<State, Delete> state_;
};

}  // namespace perdure
