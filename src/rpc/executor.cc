// Calls executed exactly once: see executor.h.
#include "rpc/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/log_message.h"
#include "core/try.h"

namespace perdure::rpc {
namespace {

std::uint32_t status_of(const Result<std::size_t>& outcome) {
  return outcome.ok() ? 0 : 1 + static_cast<std::uint32_t>(outcome.code());
}

}  // namespace

/// What one handler sees of the transaction. Leaves room for what comes behind it.
class Executor::Transaction final : public RpcTransaction {
 public:
  Transaction(RedoLog& redo, const PoolShape& shape, std::uint64_t reserved)
      : redo_(redo), shape_(shape), reserved_(reserved) {}

  std::uint64_t bytes() const override { return shape_.data_bytes; }
  Result<void> read(std::uint64_t at, std::span<std::byte> into) const override {
    PERDURE_TRY_VOID(check(at, into.size()));
    redo_.read(shape_.data_at() + at, into);
    return {};
  }
  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) override {
    auto written = check(at, bytes.size());
    if (written.ok() && redo_.room() < bytes.size() + reserved_) {
      written = Error{ErrorCode::NoSpace, "the transaction would be too large"};
    }
    if (written.ok()) written = redo_.write(shape_.data_at() + at, bytes);
    if (!written.ok() && !failure_) failure_ = written.error();
    return written;
  }
  /// The first write that failed.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  Result<void> check(std::uint64_t at, std::uint64_t length) const {
    if (pmem::inside({at, length}, shape_.data_bytes)) return {};
    return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the handlers' {}", at,
                                                    length, shape_.data_bytes)};
  }

  RedoLog& redo_;
  const PoolShape& shape_;
  const std::uint64_t reserved_;
  std::optional<Error> failure_;
};

Executor::Executor(std::unique_ptr<RpcPool> pool, ExecutorOptions options)
    : pool_(std::move(pool)),
      options_(std::move(options)),
      redo_(pool_->redo()),
      running_(pool_->places()),
      reply_(pool_->shape().reply_bytes_max),
      places_(running_),
      heard_(places_.size(), options_.clock->now()) {}

Result<std::unique_ptr<Executor>> Executor::open(std::unique_ptr<RpcPool> pool,
                                                 ExecutorOptions options) {
  std::unique_ptr<Executor> executor(new Executor(std::move(pool), std::move(options)));
  const MutexLock work(executor->work_);
  PERDURE_TRY_VOID(executor->count_attempt());
  return executor;
}

/// The last process may have died of the call that it was executing.
Result<void> Executor::count_attempt() {
  const auto call = pool_->executing();
  pool_->note_executing(std::nullopt);
  if (!call) return {};
  ClientPlace& client = running_[call->place];
  if (client.client == 0 || call->sequence <= client.applied || client.held) return {};
  // What shared a transaction with it is to be executed again, and each by itself.
  suspect_ = call;
  if (call->sequence != client.applied + 1) return {};
  ++client.attempts;
  log_message(Severity::Warning,
              fmt::format("the server ended while it executed call {} of client '{}', attempt {}",
                          call->sequence, client.name, client.attempts));
  write_place(call->place);
  return commit();
}

Result<std::size_t> Executor::process() {
  const MutexLock work(work_);
  return execute();
}

std::optional<Result<std::size_t>> Executor::try_process() {
  if (!work_.try_lock()) return std::nullopt;
  auto executed = execute();
  work_.unlock();
  return executed;
}

Result<std::size_t> Executor::execute() {
  if (auto failed = failure()) return *failed;
  std::size_t calls = 0;
  const std::size_t places = running_.size();
  bool full = false;
  for (bool found = true; found && !full;) {
    found = false;
    for (std::size_t turn = 0; turn < places && !full; ++turn) {
      const std::size_t place = (next_ + turn) % places;
      const Step step = execute_next(place);
      if (step == Step::Nothing) continue;
      if (step != Step::Full) ++calls;
      found = step == Step::Applied || found;
      // A client whose handler threw gets its next turn in the next transaction.
      full = step != Step::Applied || suspect_ || calls == kCallsPerTransaction;
      if (full) next_ = (place + 1) % places;
    }
  }
  PERDURE_TRY_VOID(commit());
  if (suspect_) {
    const ClientPlace& client = running_[suspect_->place];
    if (client.applied >= suspect_->sequence || client.held || calls == 0) suspect_.reset();
  }
  return calls;
}

/// Of the redo record: what finish() writes.
std::uint64_t Executor::reserved_bytes() const {
  return 2 * kChangeHeadBytes + shape().reply_stride() + kPlaceBytes + kCacheLineBytes;
}

/// Executes the next call of a client into the transaction, if its entry is there.
Executor::Step Executor::execute_next(std::size_t place) {
  const ClientPlace& client = running_[place];
  if (client.client == 0 || (client.held && !options_.refuse_failed)) return Step::Nothing;
  const auto ring = pool_->ring(place);
  if (!may_hold_entry(ring, next_entry(client))) return Step::Nothing;
  const auto found = find_entry(ring, next_entry(client), entry_);
  if (!found) return Step::Nothing;
  if (redo_.room() < 2 * reserved_bytes()) return Step::Full;
  if (client.held) {  // by a server that did not refuse such calls
    finish_dropped(place, *found);
    return Step::Applied;
  }
  if (found->entry.operation == kRpcCancelled) {
    finish_cancelled(place, *found);
    return Step::Applied;
  }
  if (client.attempts >= options_.attempts_max) return give_up(place, *found);
  const RpcCall call{
      found->entry.operation, client.client,          client.name,
      found->entry.sequence,  found->entry.order_key, std::span(entry_).subspan(kEntryHeadBytes)};
  const bool alone = redo_.empty();  // in a transaction; else it may fit in one of its own
  const std::size_t mark = redo_.mark();
  Transaction transaction(redo_, shape(), reserved_bytes());
  pool_->note_executing(Executing{place, call.sequence});
  auto ran = run(call, transaction);
  pool_->note_executing(std::nullopt);
  if (!ran) {
    redo_.roll_back(mark);
    note_failed_attempt(place, *found);
    return Step::Again;
  }
  Result<std::size_t> outcome = transaction.failure() ? *transaction.failure() : std::move(*ran);
  if (!outcome.ok()) redo_.roll_back(mark);
  const bool no_room = transaction.failure() && outcome.code() == ErrorCode::NoSpace;
  if (no_room && !alone) return Step::Full;
  count(place, found->entry, outcome.ok());
  finish(place, *found, outcome);
  return Step::Applied;
}

/// Nothing: its handler threw.
std::optional<Result<std::size_t>> Executor::run(const RpcCall& call, Transaction& transaction) {
  using Outcome = Result<std::size_t>;
  const auto handler = options_.handlers.find(call.operation);
  if (handler == options_.handlers.end()) {
    return Outcome(Error{ErrorCode::Unsupported, "no handler"});
  }
  std::string why = "an unknown exception";
  try {
    Outcome outcome = handler->second(call, transaction, reply_);
    if (!outcome.ok() || *outcome <= reply_.size()) return outcome;
    return Outcome(
        Error{ErrorCode::InvalidArgument, "the handler's reply is larger than its room"});
  } catch (const std::exception& failed) {
    why = failed.what();
  } catch (...) {  // not ours to know
  }
  log_message(Severity::Warning,
              fmt::format("the handler of operator {} failed at call {} of client '{}': {}",
                          call.operation, call.sequence, call.client, why));
  return std::nullopt;
}

void Executor::note_failed_attempt(std::size_t place, const FoundEntry& found) {
  ClientPlace& client = running_[place];
  if (client.attempts + 1 < options_.attempts_max) {
    ++client.attempts;
    return write_place(place);
  }
  client.attempts = options_.attempts_max;
  give_up(place, found);
}

/// It has failed too often: it and all that its client called behind it wait for an operator; or it
/// is refused, and they go on.
Executor::Step Executor::give_up(std::size_t place, const FoundEntry& found) {
  ClientPlace& client = running_[place];
  ++client.set_aside;
  ++counted_.set_aside;
  log_message(Severity::Error,
              fmt::format("call {} of client '{}', operator {}, is set aside: its handler failed "
                          "{} times{}",
                          found.entry.sequence, client.name, found.entry.operation, client.attempts,
                          options_.refuse_failed ? ""
                                                 : "; it and what its client has called behind it "
                                                   "wait until it is retried or dropped"));
  if (options_.refuse_failed) {
    finish_dropped(place, found);
    return Step::Applied;
  }
  client.held = true;
  write_place(place);
  return Step::Again;
}

void Executor::count(std::size_t place, const Entry& call, bool ok) {
  if (options_.handlers.count(call.operation) != 0) {
    counted_.refused += ok ? 0 : 1;
    return;
  }
  ++counted_.unknown;
  log_message(Severity::Error,
              fmt::format("call {} of client '{}' is refused: nothing here handles operator {}",
                          call.sequence, running_[place].name, call.operation));
}

void Executor::finish(std::size_t place, const FoundEntry& found,
                      const Result<std::size_t>& outcome) {
  ReplyHead head;
  head.status = status_of(outcome);
  head.bytes = outcome.ok() ? static_cast<std::uint32_t>(*outcome) : 0;
  finish_with(place, found, head);
}

/// Its handler has failed each time, and it is not tried again.
void Executor::finish_dropped(std::size_t place, const FoundEntry& found) {
  ReplyHead head;
  head.status = kStatusDropped | (1 + static_cast<std::uint32_t>(ErrorCode::SystemError));
  finish_with(place, found, head);
}

/// Its client has taken it back before it was sent.
void Executor::finish_cancelled(std::size_t place, const FoundEntry& found) {
  ReplyHead head;
  head.status = kStatusCancelled | (1 + static_cast<std::uint32_t>(ErrorCode::TimedOut));
  ++counted_.cancelled;
  finish_with(place, found, head);
}

/// The reply and the mark that the call is applied, behind what its handler wrote.
void Executor::finish_with(std::size_t place, const FoundEntry& found, const ReplyHead& outcome) {
  ClientPlace& client = running_[place];
  client.applied = found.entry.sequence;
  client.position = found.next.position;
  client.generation = found.entry.generation;
  client.attempts = 0;
  client.held = false;
  ReplyHead head = outcome;
  head.sequence = found.entry.sequence;
  std::vector<std::byte>& bytes = entry_;  // of the call nothing is needed any more
  bytes.resize(kReplyHeadBytes + head.bytes);
  encode_reply_head(head, bytes.data());
  std::copy_n(reply_.begin(), head.bytes, bytes.begin() + kReplyHeadBytes);
  const auto written = redo_.write(shape().reply_at(place, head.sequence), bytes);
  PERDURE_ASSERT(written.ok());  // there was room when it began, and handlers leave it
  write_place(place);
  ++counted_.applied;
}

void Executor::write_place(std::size_t place) {
  const auto written = redo_.write(shape().place_at(place), encode_place(running_[place]));
  PERDURE_ASSERT(written.ok());
  touched_.push_back(place);
}

Result<void> Executor::commit() {
  if (redo_.empty()) return {};
  auto committed = redo_.commit();
  if (!committed.ok()) {
    log_message(Severity::Error,
                fmt::format("no call is executed any more: {}", committed.error().message));
    const MutexLock view(view_);
    shown_.failure = committed.error();
    return committed;
  }
  ++counted_.transactions;
  {
    const MutexLock view(view_);
    redo_.store();
    for (const std::size_t place : touched_) {
      places_[place] = running_[place];
      heard_[place] = options_.clock->now();
    }
    const std::uint64_t queries = shown_.queries;
    const std::uint64_t expired = shown_.expired;
    shown_ = counted_;
    shown_.queries = queries;
    shown_.expired = expired;
  }
  touched_.clear();
  applied_.notify_all();
  return {};
}

}  // namespace perdure::rpc
