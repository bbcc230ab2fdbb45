// Calls executed exactly once: see executor.h.
#include "rpc/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/log_message.h"
#include "core/try.h"
#include "rpc/executor_transaction.h"
#include "rpc/in_handler.h"

namespace perdure::rpc {
namespace {

std::uint32_t status_of(const Result<std::size_t>& outcome) {
  return outcome.ok() ? 0 : 1 + static_cast<std::uint32_t>(outcome.code());
}

}  // namespace

Executor::Executor(std::unique_ptr<RpcPool> pool, ExecutorOptions options)
    : pool_(std::move(pool)),
      options_(std::move(options)),
      redo_(pool_->redo()),
      running_(pool_->places()),
      reply_(pool_->shape().reply_bytes_max),
      places_(running_),
      heard_(places_.size(), options_.clock->now()),
      applied_(places_.size()),
      hints_(places_.size()) {
  if (options_.threads <= 1) return;
  PERDURE_ASSERT(options_.threads <= kExecutingMax);
  for (std::size_t lane = 0; lane < options_.threads; ++lane) {
    lanes_.push_back(std::make_unique<Lane>(redo_, shape().reply_bytes_max));
  }
  threads_ = std::make_unique<HandlerThreads>(options_.threads - 1);  // and who calls process()
}

Result<std::unique_ptr<Executor>> Executor::open(std::unique_ptr<RpcPool> pool,
                                                 ExecutorOptions options) {
  std::unique_ptr<Executor> executor(new Executor(std::move(pool), std::move(options)));
  const WorkLock work(executor->work_);
  PERDURE_TRY_VOID(executor->count_attempt());
  return executor;
}

/// The last process may have died of the call that it was executing.
Result<void> Executor::count_attempt() {
  const std::vector<Executing> calls = pool_->executing();
  // Whom to suspect, the next one that executes needs to know.
  if (calls.size() > 1 && !options_.executes) return {};
  for (std::size_t thread = 0; thread < kExecutingMax; ++thread) {
    pool_->note_executing(std::nullopt, thread);
  }
  // What was executed beside it, or shared a transaction with it, is to be executed again, and each
  // by itself: so the next time there is one that is to blame.
  for (const Executing& call : calls) {
    const ClientPlace& client = running_[call.place];
    if (client.client == 0 || call.sequence <= client.applied || client.held) continue;
    suspects_.push_back(call);
  }
  if (calls.size() != 1 || suspects_.empty()) return {};
  const Executing call = suspects_.front();
  ClientPlace& client = running_[call.place];
  if (call.sequence != client.applied + 1) return {};
  const auto found = find_entry(pool_->ring(call.place), next_entry(client), entry_);
  if (!found) return {};  // it was not durable, and is no call any more
  PERDURE_TRY_VOID(keep_entry(call.place, *found));
  ++client.attempts;
  log_message(Severity::Warning,
              fmt::format("the server ended while it executed call {} of client '{}', attempt {}",
                          call.sequence, client.name, client.attempts));
  write_place(call.place);
  return commit();
}

Result<std::size_t> Executor::process() {
  work_.lock_again();
  const WorkLock work(work_, std::adopt_lock);
  return execute(Look::Everywhere);
}

Result<std::size_t> Executor::process_hinted() {
  work_.lock_again();
  const WorkLock work(work_, std::adopt_lock);
  return execute(Look::WhereHinted);
}

std::optional<Result<std::size_t>> Executor::try_process_at(std::size_t place) {
  if (!work_.try_lock()) return std::nullopt;
  const WorkLock work(work_, std::adopt_lock);
  // What is committed waits for a query that is being answered, so that comes first.
  if (!suspects_.empty() || !data_.try_lock()) return std::nullopt;
  const WorkLock data(data_, std::adopt_lock);
  data_is_held_ = true;
  due_.assign(1, place);
  auto executed = execute_due();
  data_is_held_ = false;
  return executed;
}

bool Executor::may_hold_call(std::size_t place) {
  if (!view_.try_lock()) return true;  // it waits for nobody
  const NextEntry next = next_entry(places_[place]);
  view_.unlock();
  return may_hold_entry(pool_->ring(place), next);
}

Result<std::size_t> Executor::execute(Look look) {
  choose_places(look);
  return execute_due();
}

Result<std::size_t> Executor::execute_due() {
  if (auto failed = failure()) return *failed;
  const Nanoseconds until = options_.clock->now() + kHandlersWithin;
  const bool beside = threads_ != nullptr && suspects_.empty();
  const std::size_t calls = beside ? execute_waves(until) : execute_in_turn(until);
  for (const std::size_t place : due_) hints_.set(place);
  PERDURE_TRY_VOID(commit());
  for (std::size_t index = suspects_.size(); index-- != 0;) {
    const Executing& suspect = suspects_[index];
    const ClientPlace& client = running_[suspect.place];
    if (client.applied < suspect.sequence && !client.held && calls != 0) continue;
    suspects_.erase(suspects_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  return calls;
}

/// In the order of their turns. As long as there are suspects that is all: they are executed alone,
/// and that nothing was found says something of them too.
void Executor::choose_places(Look look) {
  hints_.take(due_);
  if (look == Look::Everywhere || !suspects_.empty()) {
    due_.resize(running_.size());
    std::iota(due_.begin(), due_.end(), std::size_t{0});
  }
  std::rotate(due_.begin(), std::lower_bound(due_.begin(), due_.end(), next_), due_.end());
}

/// Calls one after the other, until there are none or the transaction is to end; returns how many.
/// What it leaves of due_ may have more.
std::size_t Executor::execute_in_turn(Nanoseconds until) {
  std::size_t calls = 0;
  bool full = false;
  while (!due_.empty() && !full) {
    std::size_t left = 0;
    for (std::size_t turn = 0; turn < due_.size(); ++turn) {
      const std::size_t place = due_[turn];
      const Step step = full ? Step::Full : execute_next(place);
      if (step == Step::Nothing) continue;
      due_[left++] = place;
      if (full) continue;  // not looked at
      if (step != Step::Full) ++calls;
      // A client whose handler threw gets its next turn in the next transaction.
      full = step != Step::Applied || !suspects_.empty() || calls == kCallsPerTransaction ||
             options_.clock->now() >= until;
      // What did not fit is the first of the next one, where there is room for it.
      if (full) next_ = step == Step::Full ? place : (place + 1) % running_.size();
    }
    due_.resize(left);
  }
  return calls;
}

/// Of the redo record: what finish() writes.
std::uint64_t Executor::finish_bytes() const {
  return 2 * kChangeHeadBytes + shape().reply_stride() + kPlaceBytes;
}

/// What handlers leave for that: more, since their last change has a head and is rounded up.
std::uint64_t Executor::reserved_bytes() const { return finish_bytes() + kCacheLineBytes; }

/// Executes the next call of a client into the transaction, if its entry is there.
Executor::Step Executor::execute_next(std::size_t place) {
  const ClientPlace& client = running_[place];
  if (client.client == 0 || (client.held && !options_.refuse_failed)) return Step::Nothing;
  const auto ring = pool_->ring(place);
  looks_.fetch_add(1, std::memory_order_relaxed);
  if (!may_hold_entry(ring, next_entry(client))) return Step::Nothing;
  const auto found = find_entry(ring, next_entry(client), entry_);
  if (!found) return Step::Nothing;
  if (redo_.room() < 2 * reserved_bytes()) return Step::Full;
  if (client.held) {  // by a server that did not refuse such calls
    ++counted_.refused_failed;
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
      found->entry.sequence,  found->entry.order_key, std::span(entry_).subspan(kEntryHeadBytes),
      found->entry.generation};
  const bool alone = redo_.empty();  // in a transaction; else it may fit in one of its own
  const std::size_t mark = redo_.mark();
  Transaction transaction(redo_, shape(), reserved_bytes());
  pool_->note_executing(Executing{place, call.sequence});
  auto ran = run(call, transaction, reply_, 0);
  pool_->note_executing(std::nullopt);
  const std::optional<Error>& failure = transaction.failure();
  // However its handler ended: it has not had the room that it is to have.
  const bool did_not_fit = !alone && failure && failure->code == ErrorCode::NoSpace;
  if (!ran || failure || !ran->ok()) redo_.roll_back(mark);
  if (did_not_fit) return Step::Full;
  if (!ran) {
    note_failed_attempt(place, *found);
    return Step::Again;
  }
  const Result<std::size_t> outcome = failure ? *failure : std::move(*ran);
  count(place, found->entry, outcome.ok());
  finish(place, *found, outcome, reply_);
  return Step::Applied;
}

/// Nothing: its handler threw.
std::optional<Result<std::size_t>> Executor::run(const RpcCall& call, Transaction& transaction,
                                                 std::span<std::byte> reply, std::size_t thread) {
  using Outcome = Result<std::size_t>;
  const auto handler = options_.handlers.find(call.operation);
  if (handler == options_.handlers.end()) {
    return Outcome(Error{ErrorCode::Unsupported, "no handler"});
  }
  const auto failed = [&](std::string_view why) {
    log_message(Severity::Warning,
                fmt::format("the handler of operator {} failed at call {} of client '{}': {}",
                            call.operation, call.sequence, call.client, why));
    return std::nullopt;
  };
  const InHandler here(*this);
  const Noted noted(executing_, thread,
                    {call.client_id, call.sequence, call.operation, options_.clock->now()});
  try {
    Outcome outcome = handler->second(call, transaction, reply);
    if (!outcome.ok() || *outcome <= reply.size()) return outcome;
    return Outcome(
        Error{ErrorCode::InvalidArgument, "the handler's reply is larger than its room"});
  } catch (const std::exception& thrown) {
    return failed(thrown.what());
  } catch (...) {
    return failed(kUnknownException);
  }
}

/// What is noted of a call is noted of this one: a power failure must not leave the note without
/// it, for another one that its client calls after that.
Result<void> Executor::keep_entry(std::size_t place, const FoundEntry& found) {
  return end_with(pool_->make_durable(place, found.entry));
}

void Executor::note_failed_attempt(std::size_t place, const FoundEntry& found) {
  ClientPlace& client = running_[place];
  if (!keep_entry(place, found).ok()) return;
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
    ++counted_.refused_failed;
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
                      const Result<std::size_t>& outcome, std::span<const std::byte> reply) {
  ReplyHead head;
  head.status = status_of(outcome);
  head.bytes = outcome.ok() ? static_cast<std::uint32_t>(*outcome) : 0;
  finish_with(place, found, head, reply);
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
void Executor::finish_with(std::size_t place, const FoundEntry& found, const ReplyHead& outcome,
                           std::span<const std::byte> reply) {
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
  std::copy_n(reply.begin(), head.bytes, bytes.begin() + kReplyHeadBytes);
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
  PERDURE_TRY_VOID(record());
  if (data_is_held_) {
    store();
  } else {
    const WorkLock data(data_);
    store();
  }
  tell();
  return {};
}

/// Of what no query sees: so it does not wait for one that takes long.
Result<void> Executor::commit_places() {
  PERDURE_TRY_VOID(record());
  store();
  tell();
  return {};
}

/// From here on the transaction survives.
Result<void> Executor::record() {
  PERDURE_TRY_VOID(end_with(redo_.commit()));
  ++counted_.transactions;
  return {};
}

/// A medium that refuses is not trusted again.
Result<void> Executor::end_with(Result<void> done) {
  if (done.ok()) return done;
  log_message(Severity::Error,
              fmt::format("no call is executed any more: {}", done.error().message));
  const MutexLock view(view_);
  shown_.failure = done.error();
  for (std::condition_variable& waiting : applied_) waiting.notify_all();
  return done;
}

void Executor::store() {
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

void Executor::tell() {
  for (const std::size_t place : touched_) applied_[place].notify_all();
  touched_.clear();
}

}  // namespace perdure::rpc
