// The process that executes: it reads the clients' logs, and is the writer of the effects.
//
// What is in memory is ahead of the log by one transaction at most, which is appended before
// anything else is done: so what the log says is always a state between two transactions.
#include "replicated_rpc/replicated_rpc_server.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/log_message.h"
#include "core/try.h"
#include "replicated_rpc/metrics.h"

namespace perdure {

using replicated_rpc::Decision;
using replicated_rpc::Effects;
using replicated_rpc::kCallsAgainAfter;
using replicated_rpc::Sizes;
using replicated_rpc::Trial;

namespace {

/// To bring back peers with the quorum lost, or to ask who has taken over.
constexpr auto kLostWithin = std::chrono::milliseconds(200);
/// Of one client in turn.
constexpr std::size_t kCallsInTurn = 64;
/// A session of a process that has ended is gone by then.
constexpr Nanoseconds kLivesAfter = std::chrono::milliseconds(100);
/// To say that this server ends.
constexpr auto kEndWithin = std::chrono::milliseconds(500);
/// Of a pool, beside the ring.
constexpr std::uint64_t kEffectsHeadBytes = 1024 * 1024;

Sizes sizes_of(const ReplicatedRpcServerOptions& options) {
  Sizes sizes;
  sizes.data_bytes = options.data_bytes;
  sizes.transaction_bytes = options.transaction_bytes;
  sizes.clients_max = options.clients_max;
  sizes.replies = options.replies;
  sizes.reply_bytes_max = options.reply_bytes_max;
  sizes.application = options.application;
  return sizes;
}

/// Whether it may pass by itself.
bool passes(ErrorCode code) {
  switch (code) {
    case ErrorCode::QuorumLost:
    case ErrorCode::TimedOut:
    case ErrorCode::LogFull:
    case ErrorCode::QueueFull:
    case ErrorCode::Disconnected:
    case ErrorCode::OutcomeUnknown:  // of a trim, which is done again
    case ErrorCode::Busy: return true;
    default: return false;
  }
}

}  // namespace

Result<void> ReplicatedRpcServer::State::open() {
  MutexLock lock(mutex_);
  PERDURE_TRY_VOID(replicated_rpc::check_group(options_.group));
  const Sizes asked = sizes_of(options_);
  PERDURE_TRY_VOID(replicated_rpc::check_sizes(asked));
  const std::string pool = replicated_rpc::effects_pool(options_.group.service);
  PERDURE_TRY_VOID(check_application());
  LogOptions logging = replicated_rpc::log_options(options_.group, pool);
  logging.take_over = options_.take_over;
  const bool lives = options_.take_over && is_served(pool);
  PERDURE_TRY(log, replicated_rpc::open_or_create(options_.group, std::move(logging),
                                                  asked.ring_bytes() + kEffectsHeadBytes));
  log_.emplace(std::move(log));
  PERDURE_TRY_VOID(replicated_rpc::read_all(options_.group, *log_, pool,
                                            [&](const Record& record) PERDURE_REQUIRES(mutex_) {
                                              return effects_.apply(record.bytes, record.lsn);
                                            }));
  if (!effects_.sizes()) {
    const auto first = Effects::first_record(asked);
    PERDURE_TRY(ticket, log_->append(first));
    PERDURE_TRY_VOID(log_->wait(ticket, Level::Committed));
    PERDURE_TRY_VOID(effects_.apply(first, ticket.lsn));
  }
  PERDURE_TRY_VOID(effects_.check_application(asked.application, options_.group.service));
  if (log_->status().ring_bytes < effects_.sizes()->ring_bytes()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool '{}' is too small for this service", pool)};
  }
  counted_.epoch = log_->status().epoch;
  died_ = effects_.is_open() && !lives;
  careful_ = effects_.is_open() || effects_.is_careful();  // what seems to live may be ending
  return {};
}

/// Whether the server that is to be fenced lives. Who has ended has no session a little later.
bool ReplicatedRpcServer::State::is_served(const std::string& pool) {
  const auto within = std::min(options_.group.peer_timeout, std::chrono::milliseconds(1000));
  const Deadline deadline = Deadline::after(kLivesAfter);
  const auto has_writer = [&](const std::string& peer) {
    const auto there = describe_pool(peer, pool, within);
    return there.ok() && there->writer_present;
  };
  while (std::any_of(options_.group.peers.begin(), options_.group.peers.end(), has_writer)) {
    if (deadline.passed()) return true;
    std::this_thread::yield();
  }
  return false;
}

/// Another application's server is not fenced by mistake. What can not be read is looked at later.
Result<void> ReplicatedRpcServer::State::check_application() {
  auto reader = LogReader::open(replicated_rpc::reader_options(
      options_.group, replicated_rpc::effects_pool(options_.group.service)));
  if (!reader.ok()) return {};
  const auto first = reader->next();
  if (!first.ok() || !*first) return {};
  Effects found;
  if (!found.apply((*first)->bytes, (*first)->lsn).ok()) return {};
  return found.check_application(options_.application, options_.group.service);
}

void ReplicatedRpcServer::State::run() {
  while (!stopping_.load()) {
    MutexLock lock(mutex_);
    bool worked = false;
    if (!counted_.failure) {
      const auto turned = turn();
      counted_.waiting.reset();
      if (turned.ok()) {
        worked = *turned;
      } else if (passes(turned.code())) {
        counted_.waiting = turned.error();
      } else {
        counted_.failure = turned.error();
        log_message(Severity::Warning, fmt::format("service '{}' is not executed here any more: {}",
                                                   options_.group.service, turned.error().message));
      }
    }
    if (callers_.load() > 0) worked = false;
    if (!worked) lock.wait_for(idle_, replicated_rpc::kIdle);
  }
}

/// So that the next server does not take it for one that a call has ended.
void ReplicatedRpcServer::State::end() {
  MutexLock lock(mutex_);
  // What it has executed and not appended is executed again by the next one.
  if (opening_ == Opening::Unsaid || counted_.failure) return;
  const auto said = log_->append(effects_.note_ended());
  if (said.ok()) (void)log_->wait(*said, Level::Committed, kEndWithin);
}

/// Before it executes anything: what does not end in order from now on has ended without a word.
Result<void> ReplicatedRpcServer::State::note_opening() {
  if (opening_ == Opening::Noted) return {};
  if (opening_ == Opening::Unsaid) {
    opening_ = Opening::Said;
    pending_ = effects_.note_opened(died_, careful_);
    PERDURE_TRY_VOID(append_transaction());
  }
  PERDURE_TRY_VOID(await_committed());
  opening_ = Opening::Noted;
  return {};
}

/// All that was appended.
Result<void> ReplicatedRpcServer::State::await_committed() {
  const auto committed = log_->wait(*last_, Level::Committed, kLostWithin);
  if (committed.ok()) return {};
  PERDURE_TRY_VOID(log_->poll(kLostWithin));
  return committed.error();
}

/// One transaction, and what it takes to keep the log small. Whether there was anything to do.
Result<bool> ReplicatedRpcServer::State::turn() {
  if (!pending_.empty()) {
    // It could not be appended: peers that are back are brought back, and a newer server noticed.
    // And where the log was full, a round may have been committed since.
    PERDURE_TRY_VOID(log_->poll(kLostWithin));
    PERDURE_TRY_VOID(trim());
    PERDURE_TRY_VOID(append_transaction());
  }
  PERDURE_TRY_VOID(note_opening());
  if (trial_) PERDURE_TRY_VOID(go_on_with_trial());
  PERDURE_TRY_VOID(note_calm());
  look_for_clients();
  // Behind the client that was the last one: who fills each transaction does not get all of them.
  auto next = calls_.upper_bound(served_);
  for (std::size_t count = 0; count < calls_.size() && !effects_.full() && !trial_;
       ++count, ++next) {
    if (next == calls_.end()) next = calls_.begin();
    if (execute_calls(next->first, next->second)) served_ = next->first;
  }
  const bool worked = !effects_.empty() || trial_;
  pending_ = effects_.take_record();
  if (!pending_.empty()) PERDURE_TRY_VOID(append_transaction());
  if (trial_) PERDURE_TRY_VOID(go_on_with_trial());
  const auto polled = log_->poll(looks_.next());
  if (!polled.ok() && polled.code() == ErrorCode::QuorumLost) {
    PERDURE_TRY_VOID(log_->poll(kLostWithin));
  } else if (!polled.ok()) {
    return polled.error();
  }
  PERDURE_TRY_VOID(trim());
  return worked;
}

/// Whether there was anything. What is wrong with the log of one client is nobody else's business.
bool ReplicatedRpcServer::State::execute_calls(const std::string& name, Calls& calls) {
  if (calls.failure || is_held(name, calls)) return false;
  const Nanoseconds now = Clock::monotonic().now();
  if (!calls.reader) {
    if (now < calls.read_again) return false;
    calls.read_again = now + kCallsAgainAfter;
    LogReaderOptions committed = replicated_rpc::reader_options(
        options_.group, replicated_rpc::calls_pool(options_.group.service, name),
        calls.reads_first);
    auto opened = LogReader::open(std::move(committed));
    if (!opened.ok()) return false;
    calls.reader.emplace(std::move(*opened));
  }
  for (std::size_t count = 0; count < kCallsInTurn && !effects_.full(); ++count) {
    const bool alone = is_careful(calls);
    const auto record = calls.reader->next();
    if (!record.ok()) {
      calls.reader.reset();  // from its head, which the client has moved, or a later look
      ++calls.reads_first;
      return count > 0;
    }
    if (!*record) return count > 0;
    const auto taken = take(name, calls, **record, alone);
    if (trial_ || calls.held) return true;
    if (taken.ok()) continue;
    calls.failure = taken.error();
    log_message(Severity::Warning, fmt::format("calls of client '{}' are not executed: {}", name,
                                               taken.error().message));
    return true;
  }
  return true;
}

/// A call that is committed: it is the next one, or was executed before. `alone`: it is only made
/// ready for that.
Result<void> ReplicatedRpcServer::State::take(const std::string& name, Calls& calls,
                                              const Record& record, bool alone) {
  PERDURE_TRY(asked, replicated_rpc::decode_call(record.bytes));
  if (asked.kind == replicated_rpc::CallKind::First) return {};
  const auto place = effects_.places().find(name);
  const bool known = place != effects_.places().end() && place->second.client_id == asked.client_id;
  const std::uint64_t applied = known ? place->second.applied : 0;
  const std::uint32_t generation = known ? place->second.generation : 0;
  if (asked.sequence <= applied && record.epoch.value <= generation) return {};
  if (asked.sequence != applied + 1) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("its log has call {} of epoch {}, and the last one that was executed "
                             "is {} of epoch {}",
                             asked.sequence, record.epoch.value, applied, generation)};
  }
  RpcCall call;
  call.operation = asked.operation;
  call.client_id = asked.client_id;
  call.client = name;
  call.sequence = asked.sequence;
  call.order_key = asked.order_key;
  call.payload = asked.payload;
  call.generation = record.epoch.value;
  calls.held = options_.hold_failed && effects_.is_held(call);
  if (calls.held) return {};
  // Whoever has ended servers is tried alone, also by one that is not careful.
  if (!alone && !effects_.is_suspect(call)) {
    execute(call);
    return {};
  }
  Trial& trial = trial_.emplace();
  trial.client = name;
  trial.payload.assign(asked.payload.begin(), asked.payload.end());
  trial.call = call;
  trial.call.client = trial.client;
  trial.call.payload = trial.payload;
  return {};
}

void ReplicatedRpcServer::State::execute(const RpcCall& call) {
  const auto handler = options_.handlers.find(call.operation);
  const auto refused =
      effects_.execute(call, handler == options_.handlers.end() ? nullptr : &handler->second);
  ++counted_.executed;
  if (refused) ++counted_.refused;
}

Result<void> ReplicatedRpcServer::State::append_transaction() {
  PERDURE_TRY(ticket, log_->append(pending_));
  last_ = ticket;
  const std::uint64_t bytes = pending_.size();
  pending_.clear();
  return go_round(bytes);
}

/// Copies twice as many bytes as were just written: a round is at most a quarter of the ring, and
/// begins when half of it is in use, so it ends before three quarters and an eighth are.
Result<void> ReplicatedRpcServer::State::go_round(std::uint64_t bytes) {
  if (!effects_.round()) {
    const LogStatus status = log_->status();
    const Lsn since = std::max(status.head, effects_.complete_from());
    if (status.tail.value - since.value < status.ring_bytes / 2) return {};
    PERDURE_TRY_VOID(append_piece(effects_.begin_round()));
  }
  for (std::uint64_t copied = 0; effects_.round() && copied < 2 * bytes;) {
    PERDURE_TRY(piece, append_piece(effects_.next_piece()));
    copied += piece;
  }
  if (effects_.round()) return {};
  round_end_ = last_;
  ++counted_.rounds;
  return {};
}

Result<std::uint64_t> ReplicatedRpcServer::State::append_piece(
    const std::vector<std::byte>& piece) {
  PERDURE_TRY(ticket, log_->append(piece));
  last_ = ticket;
  PERDURE_TRY_VOID(effects_.apply(piece, ticket.lsn));
  return std::uint64_t{piece.size()};
}

/// What is before the last whole round goes, once that is committed.
Result<void> ReplicatedRpcServer::State::trim() {
  if (round_end_ && !log_->reached(*round_end_, Level::Committed)) return {};
  round_end_.reset();
  const Lsn from = effects_.complete_from();
  if (from <= log_->status().head) return {};
  return log_->trim(from);
}

Result<void> ReplicatedRpcServer::State::read(std::uint64_t at, std::span<std::byte> into,
                                              Nanoseconds timeout) {
  const Caller caller(*this);
  for (const Deadline deadline = Deadline::after(timeout);;) {
    MutexLock lock(mutex_);
    if (counted_.failure) return *counted_.failure;
    const auto bytes = effects_.bytes();
    if (at > bytes.size() || into.size() > bytes.size() - at) {
      return Error{ErrorCode::OutOfRange, "these bytes lie outside the handlers'"};
    }
    const bool committed =
        pending_.empty() &&
        (!last_ || log_->wait(*last_, Level::Committed, std::chrono::milliseconds(10)).ok());
    if (committed) {
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), into.size(), into.begin());
      return {};
    }
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut, "what was executed last is not committed yet"};
    }
    lock.wait_for(idle_, replicated_rpc::kIdle);
  }
}

Result<void> ReplicatedRpcServer::State::replace_peer(const std::string& which,
                                                      const std::string& peer) {
  const Caller caller(*this);
  MutexLock lock(mutex_);
  if (counted_.failure) return *counted_.failure;
  auto& group = options_.group;
  PERDURE_TRY_VOID(replicated_rpc::check_replacement(group, which, peer));
  const auto in_effects = replicated_rpc::replace_in(
      group, *log_, replicated_rpc::effects_pool(group.service), which, peer);
  // Then the log takes nothing more: who opens the service next finds out.
  const bool unknown = !in_effects.ok() && in_effects.code() == ErrorCode::OutcomeUnknown;
  if (unknown) counted_.failure = in_effects.error();
  if (!in_effects.ok()) return in_effects.error();
  std::replace(group.peers.begin(), group.peers.end(), which, peer);
  for (auto& earlier : replaced_) {
    if (earlier.second == which) earlier.second = peer;
  }
  replaced_.emplace_back(which, peer);
  std::optional<Error> failed;
  for (auto& [name, calls] : calls_) {
    calls.reader.reset();  // over the peers that there are now
    calls.read_again = Nanoseconds{0};
    calls.resolved = Epoch{};  // Busy: it is done when its client has gone
    const auto resolved = resolve(name, calls);
    if (!resolved.ok() && resolved.code() != ErrorCode::Busy) failed = resolved.error();
  }
  if (failed) return *failed;
  return {};
}

ReplicatedRpcServerStatus ReplicatedRpcServer::State::status() {
  const Caller caller(*this);
  MutexLock lock(mutex_);
  ReplicatedRpcServerStatus status = counted_;
  const LogStatus effects = log_->status();
  status.effects_bytes = effects.tail.value - effects.head.value;
  status.effects_bytes_max = effects.ring_bytes;
  status.quorum = effects.quorum;
  status.replicas = effects.replicas.size();
  status.replicas_up = replicated_rpc::replicas_up(effects);
  std::map<std::string, ReplicatedRpcClientPlace> places;
  for (const auto& [name, place] : effects_.places()) {
    places[name] = {name, place.client_id, place.applied, 0, 0, std::nullopt, false};
  }
  for (const auto& [name, tried] : effects_.tried()) {
    places[name].name = name;
    places[name].attempts = tried.ends;
    places[name].held = tried.held;
  }
  for (const auto& [name, calls] : calls_) {
    places[name].name = name;
    places[name].failure = calls.failure;
    status.careful += calls.careful ? 1 : 0;
    if (!calls.reader) continue;
    const Lsn read = calls.reader->position();
    places[name].waiting_bytes = std::max(calls.reader->committed(), read).value - read.value;
  }
  for (auto& [name, place] : places) status.clients.push_back(std::move(place));
  return status;
}

std::string ReplicatedRpcServer::State::metrics() {
  const ReplicatedRpcServerStatus now = status();
  MutexLock lock(mutex_);
  return replicated_rpc::metrics_text(options_.group.service, now);
}

void ReplicatedRpcServer::Delete::operator()(State* state) const {
  // In a child its thread is not there, and its connections are the parent's.
  if (state->process == forks_so_far()) delete state;
}

Result<ReplicatedRpcServer> ReplicatedRpcServer::open(ReplicatedRpcServerOptions options) {
  std::unique_ptr<State, Delete> state(new State(std::move(options)));
  PERDURE_TRY_VOID(state->open());
  state->start();
  return ReplicatedRpcServer(std::move(state));
}

ReplicatedRpcServer::ReplicatedRpcServer(std::unique_ptr<State, Delete> state)
    : state_(std::move(state)) {}
ReplicatedRpcServer::ReplicatedRpcServer(ReplicatedRpcServer&&) noexcept = default;
ReplicatedRpcServer& ReplicatedRpcServer::operator=(ReplicatedRpcServer&&) noexcept = default;
ReplicatedRpcServer::~ReplicatedRpcServer() = default;

namespace {
Error no_server() {
  return {ErrorCode::InvalidArgument, "this server was moved from, or is its parent process's"};
}
}  // namespace

Result<void> ReplicatedRpcServer::read(std::uint64_t at, std::span<std::byte> into,
                                       std::chrono::milliseconds timeout) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_server();
  return state_->read(at, into, timeout);
}

Result<void> ReplicatedRpcServer::replace_peer(const std::string& which, const std::string& peer) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_server();
  return state_->replace_peer(which, peer);
}

Result<void> ReplicatedRpcServer::retry(const std::string& client, std::uint64_t sequence) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_server();
  return state_->decide(client, sequence, Decision::Retry);
}

Result<void> ReplicatedRpcServer::drop(const std::string& client, std::uint64_t sequence) {
  if (state_ == nullptr || state_->process != forks_so_far()) return no_server();
  return state_->decide(client, sequence, Decision::Drop);
}

ReplicatedRpcServerStatus ReplicatedRpcServer::status() const {
  if (state_ == nullptr || state_->process != forks_so_far()) return {};
  return state_->status();
}

std::string ReplicatedRpcServer::metrics() const {
  if (state_ == nullptr || state_->process != forks_so_far()) return {};
  return state_->metrics();
}

}  // namespace perdure
