// A client: the writer of its own log of calls, and a reader of the effects.
#include <fmt/format.h>
#include <perdure/log.h>
#include <perdure/replicated_rpc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/forks.h"
#include "core/mutex.h"
#include "core/random.h"
#include "core/try.h"
#include "replicated_rpc/effects.h"
#include "replicated_rpc/group.h"
#include "replicated_rpc/metrics.h"
#include "replicated_rpc/records.h"

namespace perdure {

using replicated_rpc::CallKind;
using replicated_rpc::CallRecord;
using replicated_rpc::Effects;
using replicated_rpc::ItemType;
using replicated_rpc::RecordItem;

namespace {

constexpr std::uint64_t kRecordBytesMax = 16 * 1024 * 1024;  // of any log
/// While nobody calls, the log is looked after so often: readers learn what is committed.
constexpr auto kLookAfter = std::chrono::milliseconds(2);
/// Effects that could not be read are tried again.
constexpr Nanoseconds kEffectsAgainAfter = std::chrono::milliseconds(20);
constexpr std::size_t kRepliesMax = 4096;
constexpr std::uint64_t kCallsHeadBytes = 256 * 1024;

Error no_client() {
  return {ErrorCode::InvalidArgument, "this client was moved from, or is its parent process's"};
}

}  // namespace

class ReplicatedRpcClient::State {
 public:
  explicit State(ReplicatedRpcClientOptions asked) : options_(std::move(asked)) {}
  ~State() {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<void> open();
  void start() {
    thread_ = std::thread([this] { look_after(); });
  }

  Result<RpcHandle> call(std::uint32_t operation, std::span<const std::byte> payload,
                         std::uint64_t order_key);
  Result<void> wait_durable(const RpcHandle& handle, Nanoseconds timeout);
  Result<void> wait_applied(const RpcHandle& handle, Nanoseconds timeout);
  Result<RpcReply> kept_reply(const RpcHandle& handle, const Deadline& deadline);
  Result<void> read(std::uint64_t at, std::span<std::byte> into, Nanoseconds timeout);
  Result<void> replace_peer(const std::string& which, const std::string& peer);
  RpcHandle handle_of(std::uint64_t sequence);
  ReplicatedRpcClientStatus status();
  std::string metrics();

  const std::uint32_t process = forks_so_far();

 private:
  /// A call whose record is kept: its place, and its ticket if this process has called it.
  struct Begun {
    std::uint64_t sequence = 0;
    Lsn lsn;
    std::optional<Ticket> ticket;
  };

  /// Of the effects. What was written in a later epoch is newer, also behind a loss that was
  /// accepted, where it stands before what was given up.
  struct Seen {
    Epoch epoch;
    Lsn lsn;  // of the last record
    auto operator<=>(const Seen&) const = default;
  };

  void look_after();
  Result<Log> open_log(const std::string& pool) PERDURE_REQUIRES(mutex_);
  Result<void> note_own(const Record& record) PERDURE_REQUIRES(mutex_);
  Result<Ticket> append(const CallRecord& call, std::span<const std::byte> payload)
      PERDURE_REQUIRES(mutex_);
  Result<void> check(const RpcHandle& handle) PERDURE_REQUIRES(mutex_);
  bool is_durable(std::uint64_t sequence) const PERDURE_REQUIRES(mutex_);
  Result<bool> read_effects(const Deadline& deadline) PERDURE_REQUIRES(mutex_);
  void forget_effects() PERDURE_REQUIRES(mutex_);
  bool was_given_up(const Record& record) const PERDURE_REQUIRES(mutex_);
  Error unread_effects(bool ended) const PERDURE_REQUIRES(mutex_);
  Result<void> take(const Record& record) PERDURE_REQUIRES(mutex_);
  Result<void> take(const RecordItem& item) PERDURE_REQUIRES(mutex_);
  Error set_aside() const PERDURE_REQUIRES(mutex_);
  void trim() PERDURE_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable idle_;
  std::atomic<bool> stopping_{false};
  ReplicatedRpcClientOptions options_ PERDURE_GUARDED_BY(mutex_);
  std::optional<Log> log_ PERDURE_GUARDED_BY(mutex_);
  replicated_rpc::Looks looks_ PERDURE_GUARDED_BY(mutex_);  // at log_
  std::optional<LogReader> effects_ PERDURE_GUARDED_BY(mutex_);
  std::optional<Effects> copy_ PERDURE_GUARDED_BY(mutex_);  // of what it has read, for read
  Seen at_ PERDURE_GUARDED_BY(mutex_);                      // so far this reader has read
  Seen seen_ PERDURE_GUARDED_BY(mutex_);                    // so far any has
  Lsn first_of_epoch_ PERDURE_GUARDED_BY(mutex_);           // the first that was read of its epoch
  std::size_t reads_first_ PERDURE_GUARDED_BY(mutex_) = 0;  // of effects: a peer's number
  Nanoseconds read_again_ PERDURE_GUARDED_BY(mutex_){0};    // effects, not before
  std::optional<Error> unread_ PERDURE_GUARDED_BY(mutex_);  // why they could not be
  std::optional<Error> over_ PERDURE_GUARDED_BY(mutex_);    // why they are not its own any more
  std::optional<Error> fenced_ PERDURE_GUARDED_BY(mutex_);  // from its log, as far as was noticed
  std::uint64_t client_id_ PERDURE_GUARDED_BY(mutex_) = 0;  // 0: its log has no record yet
  std::uint64_t earlier_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::uint64_t begun_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::uint64_t applied_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::uint64_t held_ PERDURE_GUARDED_BY(mutex_) = 0;  // a call that is set aside, as was read last
  std::deque<Begun> kept_ PERDURE_GUARDED_BY(mutex_);  // from the last one that is applied on
  std::map<std::uint64_t, RpcReply> replies_ PERDURE_GUARDED_BY(mutex_);
  std::thread thread_;
};

/// An earlier process, or the server that takes it for dead, may be at it just now.
Result<Log> ReplicatedRpcClient::State::open_log(const std::string& pool) {
  LogOptions logging = replicated_rpc::log_options(options_.group, pool);
  logging.take_over = true;
  logging.record_bytes_max = std::min(options_.calls_bytes / 4, kRecordBytesMax);
  logging.writer_name = options_.name;
  for (const Deadline deadline = Deadline::after(options_.group.peer_timeout);;) {
    auto log = replicated_rpc::open_or_create(options_.group, logging,
                                              options_.calls_bytes + kCallsHeadBytes);
    const bool passes =
        !log.ok() && (log.code() == ErrorCode::Busy || log.code() == ErrorCode::Fenced);
    if (!passes || deadline.passed()) return log;
    std::this_thread::yield();
  }
}

Result<void> ReplicatedRpcClient::State::open() {
  MutexLock lock(mutex_);
  PERDURE_TRY_VOID(replicated_rpc::check_group(options_.group));
  PERDURE_TRY_VOID(replicated_rpc::check_client_name(options_.name));
  if (options_.calls_bytes < 64 * 1024 || options_.calls_bytes > (std::uint64_t{1} << 30)) {
    return Error{ErrorCode::InvalidArgument, "a client has 64 KiB to 1 GiB for its calls"};
  }
  const std::string pool = replicated_rpc::calls_pool(options_.group.service, options_.name);
  PERDURE_TRY(log, open_log(pool));
  log_.emplace(std::move(log));
  PERDURE_TRY_VOID(replicated_rpc::read_all(
      options_.group, *log_, pool,
      [&](const Record& record) PERDURE_REQUIRES(mutex_) { return note_own(record); }));
  earlier_ = begun_;
  // Who is an older copy of what was executed, or fenced, hears it now, if anybody says so.
  if (client_id_ != 0) {
    PERDURE_TRY_VOID(read_effects(Deadline::after(options_.group.peer_timeout)));
    return {};
  }
  client_id_ = random_secret();
  CallRecord first;
  first.kind = CallKind::First;
  first.client_id = client_id_;
  PERDURE_TRY(ticket, append(first, {}));
  return log_->wait(ticket, Level::Committed);
}

/// A record of an earlier process: who the client is, and what was called last.
Result<void> ReplicatedRpcClient::State::note_own(const Record& record) {
  PERDURE_TRY(call, replicated_rpc::decode_call(record.bytes));
  client_id_ = call.client_id;
  begun_ = call.sequence;
  kept_.push_back({call.sequence, record.lsn, std::nullopt});
  return {};
}

/// Readers, the server among them, learn what is committed from the next record or from a pause: a
/// client that does something else makes the pause here.
void ReplicatedRpcClient::State::look_after() {
  while (!stopping_.load()) {
    MutexLock lock(mutex_);
    const auto polled = log_->poll(looks_.next());  // what is wrong the next call says
    if (!polled.ok() && polled.code() == ErrorCode::Fenced) fenced_ = polled.error();
    lock.wait_for(idle_, kLookAfter);
  }
}

Result<Ticket> ReplicatedRpcClient::State::append(const CallRecord& call,
                                                  std::span<const std::byte> payload) {
  const auto head = replicated_rpc::encode_call_head(call);
  const std::array<std::span<const std::byte>, 2> pieces = {head, payload};
  return log_->append_pieces(payload.empty() ? std::span(pieces).first(1) : std::span(pieces));
}

Result<RpcHandle> ReplicatedRpcClient::State::call(std::uint32_t operation,
                                                   std::span<const std::byte> payload,
                                                   std::uint64_t order_key) {
  MutexLock lock(mutex_);
  if (over_) return *over_;
  CallRecord call;
  call.operation = operation;
  call.client_id = client_id_;
  call.sequence = begun_ + 1;
  call.order_key = order_key;
  for (const Deadline deadline = Deadline::after(options_.group.peer_timeout);;) {
    const auto ticket = append(call, payload);
    if (ticket.ok()) {
      begun_ = call.sequence;
      kept_.push_back({call.sequence, ticket->lsn, *ticket});
      return RpcHandle{call.sequence, client_id_};
    }
    if (ticket.code() != ErrorCode::LogFull) return ticket.error();
    PERDURE_TRY_VOID(read_effects(deadline));
    trim();
    if (deadline.passed()) {
      return Error{ErrorCode::QueueFull,
                   fmt::format("calls up to {} are applied, and there is no room for call {}",
                               applied_, call.sequence)};
    }
    (void)log_->poll();
    lock.wait_for(idle_, replicated_rpc::kIdle);
  }
}

Result<void> ReplicatedRpcClient::State::check(const RpcHandle& handle) {
  if (handle.client_id == client_id_ && handle.sequence != 0 && handle.sequence <= begun_) {
    return {};
  }
  return Error{ErrorCode::InvalidArgument, "this is no call of this client"};
}

Result<void> ReplicatedRpcClient::State::wait_durable(const RpcHandle& handle,
                                                      Nanoseconds timeout) {
  MutexLock lock(mutex_);
  PERDURE_TRY_VOID(check(handle));
  if (over_ && over_->code == ErrorCode::Corrupt) return *over_;
  if (handle.sequence <= applied_) return {};
  for (const Begun& each : kept_) {
    if (each.sequence != handle.sequence || !each.ticket) continue;
    return log_->wait(*each.ticket, Level::Committed,
                      std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  }
  return {};  // an earlier process's: it was in the log when that was opened
}

/// As far as it is known. An earlier process's call was in the log when that was opened.
bool ReplicatedRpcClient::State::is_durable(std::uint64_t sequence) const {
  return std::none_of(kept_.begin(), kept_.end(), [&](const Begun& each) PERDURE_REQUIRES(mutex_) {
    return each.sequence == sequence && each.ticket &&
           !log_->reached(*each.ticket, Level::Committed);
  });
}

Result<void> ReplicatedRpcClient::State::wait_applied(const RpcHandle& handle,
                                                      Nanoseconds timeout) {
  MutexLock lock(mutex_);
  PERDURE_TRY_VOID(check(handle));
  for (const Deadline deadline = Deadline::after(timeout);;) {
    if (handle.sequence <= applied_) break;
    const auto polled = log_->poll(std::min<std::chrono::milliseconds>(
        looks_.next(), std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left())));
    const auto read = read_effects(deadline);
    if (handle.sequence <= applied_) break;
    if (!read.ok()) return read.error();
    // Only at their end is it known that nobody has decided since.
    if (*read && at_ >= seen_ && held_ > applied_ && handle.sequence >= held_) return set_aside();
    const bool fenced = !polled.ok() && polled.code() == ErrorCode::Fenced;
    if (fenced && !is_durable(handle.sequence)) {
      return Error{ErrorCode::Fenced,
                   fmt::format("whether call {} is durable only the next process of client '{}' "
                               "knows: {}",
                               handle.sequence, options_.name, polled.error().message)};
    }
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("call {} is not applied yet{}", handle.sequence,
                               unread_ ? "; the effects: " + unread_->message : "")};
    }
    lock.wait_for(idle_, replicated_rpc::kIdle);
  }
  trim();
  return {};
}

/// All that there are, until `deadline`. What could not be read is read later: the peers that have
/// it may be back. Returns whether it has come to the end of what is committed.
Result<bool> ReplicatedRpcClient::State::read_effects(const Deadline& deadline) {
  if (over_) return *over_;
  const Nanoseconds now = Clock::monotonic().now();
  if (!effects_) {
    if (now < read_again_) return false;
    read_again_ = now + kEffectsAgainAfter;
    LogReaderOptions committed = replicated_rpc::reader_options(
        options_.group, replicated_rpc::effects_pool(options_.group.service), reads_first_);
    auto opened = LogReader::open(std::move(committed));
    if (!opened.ok()) {
      unread_ = opened.error();
      return false;
    }
    effects_.emplace(std::move(*opened));
    if (options_.reads) copy_.emplace();
  }
  do {
    const auto record = effects_->next();
    const bool given_up = record.ok() && *record && was_given_up(**record);
    if (!record.ok() || given_up) {
      unread_ = given_up ? Error{ErrorCode::Corrupt, "a peer has effects that were given up"}
                         : record.error();
      forget_effects();  // from its head: a round may have gone by
      ++reads_first_;
      return false;
    }
    unread_.reset();
    if (!*record) return true;
    const auto taken = take(**record);
    if (taken.ok()) continue;
    over_ = taken.error();
    return *over_;
  } while (!deadline.passed());
  return false;
}

void ReplicatedRpcClient::State::forget_effects() {
  effects_.reset();
  copy_.reset();
  at_ = Seen{};
  held_ = 0;
}

/// Whether it stands where a later epoch has begun, of which this client has read.
bool ReplicatedRpcClient::State::was_given_up(const Record& record) const {
  return record.epoch < seen_.epoch && record.lsn >= first_of_epoch_;
}

Result<void> ReplicatedRpcClient::State::take(const Record& record) {
  if (record.epoch > seen_.epoch) first_of_epoch_ = record.lsn;
  at_ = {record.epoch, record.lsn};
  seen_ = std::max(seen_, at_);
  if (copy_) PERDURE_TRY_VOID(copy_->apply(record.bytes, record.lsn));
  return replicated_rpc::for_each_item(
      record.bytes, [&](const RecordItem& item) PERDURE_REQUIRES(mutex_) { return take(item); });
}

Error ReplicatedRpcClient::State::set_aside() const {
  return {ErrorCode::Busy,
          fmt::format("call {} of client '{}' is set aside, for servers have ended in its handler: "
                      "it and what was called behind it wait until an operator retries or drops it",
                      held_, options_.name)};
}

Result<void> ReplicatedRpcClient::State::take(const RecordItem& item) {
  const bool marks = item.type == ItemType::Applied || item.type == ItemType::Place;
  const bool replies = item.type == ItemType::Applied || item.type == ItemType::Kept;
  if (item.number != client_id_ || item.name != options_.name) return {};
  if (item.type == ItemType::Tried) {
    held_ = (item.status & replicated_rpc::kHeld) != 0 ? item.sequence : 0;
  }
  if (!marks && !replies) return {};
  // A newer process counts on from what is in the log: its calls may have the numbers of those that
  // this one has begun, and that nobody has.
  const Epoch own = log_->status().epoch;
  if (marks && item.generation > own.value) {
    return Error{ErrorCode::Fenced, fmt::format("a newer process of client '{}' calls, of epoch {}",
                                                options_.name, item.generation)};
  }
  const bool older = marks && item.generation < own.value && item.sequence > earlier_;
  if (item.sequence > begun_ || older) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("call {} of client '{}' was executed, and its log ends with {}: its "
                             "pools are older copies",
                             item.sequence, options_.name, older ? earlier_ : begun_)};
  }
  if (marks) applied_ = std::max(applied_, item.sequence);
  if (!replies) return {};
  RpcReply& reply = replies_[item.sequence];
  reply = RpcReply{};
  if (item.status != 0) {
    const std::uint32_t status = item.status & ~replicated_rpc::kDropped;
    const auto code = std::min(status - 1, static_cast<std::uint32_t>(ErrorCode::SystemError));
    reply.refused = static_cast<ErrorCode>(code);
    reply.dropped = (item.status & replicated_rpc::kDropped) != 0;
  }
  reply.bytes.assign(item.bytes.begin(), item.bytes.end());
  if (replies_.size() > kRepliesMax) replies_.erase(replies_.begin());
  return {};
}

/// What is applied needs no place in the log. But the last record stays: it says who this is.
void ReplicatedRpcClient::State::trim() {
  while (kept_.size() > 1 && kept_[1].sequence <= applied_) kept_.pop_front();
  if (kept_.empty() || kept_.front().sequence > applied_) return;
  const LogStatus status = log_->status();
  if (kept_.front().lsn.value - status.head.value < status.ring_bytes / 4) return;
  (void)log_->trim(kept_.front().lsn);  // else the next time
}

/// Of a call that is known to be applied: what says so may stand before the reply, where a round of
/// the effects begins. So it is not kept only if it is not there up to their end.
Result<RpcReply> ReplicatedRpcClient::State::kept_reply(const RpcHandle& handle,
                                                        const Deadline& deadline) {
  MutexLock lock(mutex_);
  for (bool at_end = false;;) {
    const auto reply = replies_.find(handle.sequence);
    if (reply != replies_.end()) return reply->second;
    if (at_end) return Error{ErrorCode::NotFound, "the reply of this call is not kept any more"};
    PERDURE_TRY(ended, read_effects(deadline));
    at_end = ended;
    if (at_end) continue;
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("the reply of call {} is not read yet{}", handle.sequence,
                               unread_ ? "; the effects: " + unread_->message : "")};
    }
    lock.wait_for(idle_, replicated_rpc::kIdle);
  }
}

Error ReplicatedRpcClient::State::unread_effects(bool ended) const {
  std::string why = unread_ ? ": " + unread_->message : "";
  if (!unread_ && ended && at_ < seen_) {
    why = fmt::format(
        ": what can be read ends with epoch {}, LSN {}, and this client has read epoch {}, LSN {}",
        at_.epoch.value, at_.lsn.value, seen_.epoch.value, seen_.lsn.value);
  }
  return {ErrorCode::TimedOut, "the effects could not be read to their end" + why};
}

/// A copy that was begun anew, over another peer, may be older than what was read before: of a peer
/// that was left behind, or that has what was given up since.
Result<void> ReplicatedRpcClient::State::read(std::uint64_t at, std::span<std::byte> into,
                                              Nanoseconds timeout) {
  MutexLock lock(mutex_);
  if (!options_.reads) {
    return Error{ErrorCode::Unsupported,
                 "this client keeps no bytes of handlers: open it with `reads`"};
  }
  for (const Deadline deadline = Deadline::after(timeout);;) {
    PERDURE_TRY(ended, read_effects(deadline));
    if (ended && copy_->is_whole() && at_ >= seen_) break;
    if (deadline.passed()) return unread_effects(ended);
    lock.wait_for(idle_, replicated_rpc::kIdle);
  }
  const auto bytes = copy_->bytes();
  if (at > bytes.size() || into.size() > bytes.size() - at) {
    return Error{ErrorCode::OutOfRange, "these bytes lie outside the handlers'"};
  }
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), into.size(), into.begin());
  return {};
}

Result<void> ReplicatedRpcClient::State::replace_peer(const std::string& which,
                                                      const std::string& peer) {
  MutexLock lock(mutex_);
  auto& peers = options_.group.peers;
  PERDURE_TRY_VOID(replicated_rpc::check_replacement(options_.group, which, peer));
  PERDURE_TRY_VOID(replicated_rpc::replace_in(
      options_.group, *log_, replicated_rpc::calls_pool(options_.group.service, options_.name),
      which, peer));
  std::replace(peers.begin(), peers.end(), which, peer);
  forget_effects();
  return {};
}

RpcHandle ReplicatedRpcClient::State::handle_of(std::uint64_t sequence) {
  MutexLock lock(mutex_);
  return {sequence, client_id_};
}

ReplicatedRpcClientStatus ReplicatedRpcClient::State::status() {
  MutexLock lock(mutex_);
  const LogStatus calls = log_->status();
  ReplicatedRpcClientStatus status;
  status.client_id = client_id_;
  status.epoch = calls.epoch;
  status.earlier_durable = earlier_;
  status.begun = begun_;
  status.applied = applied_;
  status.calls_bytes = calls.tail.value - calls.head.value;
  status.calls_bytes_max = calls.ring_bytes;
  status.quorum = calls.quorum;
  status.replicas = calls.replicas.size();
  status.replicas_up = replicated_rpc::replicas_up(calls);
  status.unread = unread_;
  status.failure = over_ ? over_ : fenced_;
  return status;
}

std::string ReplicatedRpcClient::State::metrics() {
  const ReplicatedRpcClientStatus now = status();
  MutexLock lock(mutex_);
  return replicated_rpc::metrics_text(options_.group.service, options_.name, now);
}

void ReplicatedRpcClient::Delete::operator()(State* state) const {
  // In a child its thread is not there, and its connections are the parent's.
  if (state->process == forks_so_far()) delete state;
}

Result<ReplicatedRpcClient> ReplicatedRpcClient::open(ReplicatedRpcClientOptions options) {
  std::unique_ptr<State, Delete> state(new State(std::move(options)));
  PERDURE_TRY_VOID(state->open());
  state->start();
  return ReplicatedRpcClient(std::move(state));
}

ReplicatedRpcClient::ReplicatedRpcClient(std::unique_ptr<State, Delete> state)
    : state_(std::move(state)) {}
ReplicatedRpcClient::ReplicatedRpcClient(ReplicatedRpcClient&&) noexcept = default;
ReplicatedRpcClient& ReplicatedRpcClient::operator=(ReplicatedRpcClient&&) noexcept = default;
ReplicatedRpcClient::~ReplicatedRpcClient() = default;

Result<RpcHandle> ReplicatedRpcClient::call(std::uint32_t operation,
                                            std::span<const std::byte> payload,
                                            std::uint64_t order_key) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_client();
  return state_->call(operation, payload, order_key);
}

Result<void> ReplicatedRpcClient::wait(const RpcHandle& handle, RpcLevel level,
                                       std::chrono::milliseconds timeout) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_client();
  if (level == RpcLevel::Durable) return state_->wait_durable(handle, timeout);
  return state_->wait_applied(handle, timeout);
}

Result<RpcReply> ReplicatedRpcClient::reply(const RpcHandle& handle,
                                            std::chrono::milliseconds timeout) {
  const Deadline deadline = Deadline::after(timeout);
  PERDURE_TRY_VOID(wait(handle, RpcLevel::Applied, timeout));
  return state_->kept_reply(handle, deadline);
}

Result<void> ReplicatedRpcClient::read(std::uint64_t at, std::span<std::byte> into,
                                       std::chrono::milliseconds timeout) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_client();
  return state_->read(at, into, timeout);
}

Result<void> ReplicatedRpcClient::replace_peer(const std::string& which, const std::string& peer) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_client();
  return state_->replace_peer(which, peer);
}

RpcHandle ReplicatedRpcClient::handle_of(std::uint64_t sequence) const {
  if (state_ == nullptr || state_->process != forks_so_far()) return {};
  return state_->handle_of(sequence);
}

ReplicatedRpcClientStatus ReplicatedRpcClient::status() const {
  if (state_ == nullptr || state_->process != forks_so_far()) return {};
  return state_->status();
}

std::string ReplicatedRpcClient::metrics() const {
  if (state_ == nullptr || state_->process != forks_so_far()) return {};
  return state_->metrics();
}

}  // namespace perdure
