// The public face of the log: peers by address, tickets and processes told apart.
#include <perdure/log.h>

#include <fmt/format.h>

#include <algorithm>

#include "client/dial.h"
#include "core/bounded_time.h"
#include "core/forks.h"
#include "core/sampled_times.h"
#include "core/try.h"
#include "log/failover_reader.h"
#include "log/replicated_log.h"

namespace perdure {
namespace {

/// How long the end of a log waits for replicas that lag.
constexpr Nanoseconds kCloseWithin = std::chrono::seconds(1);

log::WriterOptions writer_options(const LogOptions& options) {
  log::WriterOptions writer;
  writer.threads = true;
  writer.pool = options.pool;
  writer.quorum = options.quorum;
  writer.shape = options.shape;
  writer.primary = options.primary;
  writer.level = options.level;
  writer.record_bytes_max = options.record_bytes_max;
  writer.batches_in_flight = options.batches_in_flight;
  writer.measure_costs = options.measure_costs;
  writer.take_over = options.take_over;
  writer.accept_loss = options.accept_loss;
  writer.create = options.create;
  writer.partial = options.partial;
  writer.writer_name = options.writer_name;
  writer.replica_timeout = bounded(options.replica_timeout);
  writer.reconnect = bounded(options.reconnect);
  writer.spin = bounded(options.spin);
  return writer;
}

}  // namespace

class Log::State {
 public:
  client::Dialer dialer;  // owns the devices: outlives the log's connections
  control::TransportChoice transport;
  RnicOptions rnic;
  std::string pool;
  Level level = Level::Durable;
  SampledTimes<log::ReplicatedLog, Ticket, LogTimes> times;
  std::unique_ptr<log::ReplicatedLog> log;
  bool closed = false;
  const std::uint32_t process = forks_so_far();

  /// Apart, as the timed one: the common case stays short.
  [[gnu::noinline]] static Result<Ticket> refused(const Log& log) { return log.why_not(); }
  /// Log::append of a record that is timed.
  [[gnu::noinline]] Result<Ticket> timed_append(std::span<const std::byte> record) {
    return timed([&] { return log->append(record); });
  }
  /// Whatever else appends a record.
  template <typename Append>
  Result<Ticket> append(const Append& call) {
    if (!times.due()) [[likely]]
      return call();
    return timed(call);
  }
  /// Apart: the common case stays short.
  template <typename Append>
  [[gnu::noinline]] Result<Ticket> timed(const Append& call) {
    const auto since = times.begin(*log);
    auto appended = call();
    times.end(appended, since);
    return appended;
  }

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// A program that ends without close() tells readers all the same what is committed.
  ~State() {
    if (log == nullptr) return;
    if (!closed) (void)log->close(kCloseWithin);
    log->end_sessions(kCloseWithin);
  }
};

void Log::Delete::operator()(State* state) const {
  // In a child its connections are the parent's: whatever would end them stays.
  if (state->process == forks_so_far()) delete state;
}

Result<Log> Log::open(LogOptions options) {
  std::unique_ptr<State, Delete> state(new State);
  PERDURE_TRY_VOID(state->dialer.use_rnic(options.rnic));
  if (options.reconnect > std::chrono::milliseconds(0)) state->dialer.keep_apart();
  state->transport = options.transport;
  state->rnic = options.rnic;
  state->pool = options.pool;
  state->level = std::min(options.level, Level::Durable);
  PERDURE_TRY(peers, state->dialer.dial_replicas(options.peers, options.transport));
  PERDURE_TRY(
      log, log::ReplicatedLog::open(std::move(peers), writer_options(options), Clock::monotonic()));
  state->log = std::move(log);
  return Log(std::move(state));
}

Log::Log(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;
Log::~Log() = default;

inline bool Log::readable() const { return state_ != nullptr && state_->process == forks_so_far(); }
inline bool Log::usable() const { return readable() && !state_->closed; }

Error Log::why_not() const {
  if (state_ == nullptr) return {ErrorCode::InvalidArgument, "this log was moved from"};
  if (state_->process != forks_so_far()) {
    return {ErrorCode::InvalidArgument,
            "this log belongs to the parent process: after fork() the child opens one of its own"};
  }
  return {ErrorCode::InvalidArgument, "this log is closed: open it again"};
}

Result<Ticket> Log::append(std::span<const std::byte> record) {
  if (!usable()) [[unlikely]]
    return State::refused(*this);
  if (state_->times.due()) [[unlikely]]
    return state_->timed_append(record);
  return state_->log->append(record);
}

bool Log::append_would_block(std::uint64_t bytes) {
  return usable() && state_->log->append_would_block(bytes);
}

Result<Ticket> Log::append_pieces(std::span<const std::span<const std::byte>> pieces) {
  if (!usable()) return why_not();
  return state_->append([&] { return state_->log->append_pieces(pieces); });
}

Result<std::span<std::byte>> Log::claim(std::uint64_t bytes) {
  if (!usable()) return why_not();
  return state_->log->claim(bytes);
}

Result<Ticket> Log::append_claimed(std::uint64_t bytes) {
  if (!usable()) return why_not();
  return state_->append([&] { return state_->log->append_claimed(bytes); });
}

Result<void> Log::wait(const Ticket& ticket, Level level, std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  if (ticket.writer != state_->log->writer()) {
    return Error{ErrorCode::InvalidArgument,
                 "the ticket is of another log, or of an earlier opening of this one"};
  }
  if (level != Level::Committed && level != state_->level) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("a log that was opened for '{0}' knows when a record is '{0}' on one "
                             "replica, not when it is '{1}'",
                             to_string(state_->level), to_string(level))};
  }
  auto waited = state_->log->wait(ticket, level, bounded(timeout));
  state_->times.note(*state_->log);
  if (waited.ok()) return waited;
  const bool may_return = waited.code() == ErrorCode::QuorumLost && state_->log->may_come_back();
  if (may_return) return Error{ErrorCode::TimedOut, waited.error().message};
  if (waited.code() != ErrorCode::QuorumLost && waited.code() != ErrorCode::Fenced) return waited;
  return Error{ErrorCode::OutcomeUnknown,
               fmt::format("it is not known whether record {} will be found again: {}",
                           ticket.index, waited.error().message)};
}

Result<void> Log::poll(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  auto polled = state_->log->poll(bounded(timeout));
  state_->times.note(*state_->log);
  return polled;
}

bool Log::reached(const Ticket& ticket, Level level) const {
  return readable() && ticket.writer == state_->log->writer() && state_->log->can_reach(level) &&
         state_->log->reached(ticket, level);
}

Lsn Log::committed() const { return readable() ? state_->log->committed() : Lsn{}; }

Result<void> Log::trim(Lsn lsn) {
  if (!usable()) return why_not();
  return state_->log->trim(lsn);
}

Result<std::vector<RepairReport>> Log::repair(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->log->repair(bounded(timeout));
}

std::vector<RepairReport> Log::take_repairs() {
  if (!readable()) return {};
  return state_->log->take_repairs();
}

LogStatus Log::status() const {
  if (!readable()) return {};
  return state_->log->status();
}

LogTimes Log::times() const {
  if (!readable()) return {};
  return state_->times.times();
}

class LogReader::State {
 public:
  client::Dialer dialer;  // owns the devices: outlives the reader's connections
  std::optional<log::FailoverReader> reader;
  const std::uint32_t process = forks_so_far();

  /// `log_id`: no other log is read.
  static Result<std::unique_ptr<State, Delete>> open(const LogReaderOptions& options,
                                                     std::optional<std::uint64_t> log_id);
};

Result<LogReader> Log::reader(LogReaderOptions options) const {
  if (!readable()) return why_not();
  if (options.peers.empty()) {
    for (const ReplicaStatus& replica : state_->log->status().replicas) {
      options.peers.push_back(replica.peer);
    }
  }
  options.pool = state_->pool;
  options.transport = state_->transport;
  options.rnic = state_->rnic;
  PERDURE_TRY(state, LogReader::State::open(options, state_->log->log_id()));
  return LogReader(std::move(state));
}

Result<void> Log::close(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  state_->closed = true;
  return state_->log->close(bounded(timeout));
}

Result<void> Log::add_replica(const std::string& peer, std::size_t quorum) {
  if (!usable()) return why_not();
  PERDURE_TRY(dialled, state_->dialer.dial(peer, state_->transport));
  return state_->log->add_replica(std::move(dialled), quorum);
}

Result<void> Log::remove_replica(const std::string& which, std::size_t quorum) {
  if (!usable()) return why_not();
  return state_->log->remove_replica(which, quorum);
}

Result<void> Log::replace_replica(const std::string& which, const std::string& peer) {
  if (!usable()) return why_not();
  PERDURE_TRY(dialled, state_->dialer.dial(peer, state_->transport));
  return state_->log->replace_replica(which, std::move(dialled));
}

Result<void> Log::change_quorum(std::size_t quorum) {
  if (!usable()) return why_not();
  return state_->log->change_quorum(quorum);
}

void LogReader::Delete::operator()(State* state) const {
  if (state->process != forks_so_far()) return;  // the connections are the parent's
  delete state;
}

Result<LogReader> LogReader::open(LogReaderOptions options) {
  PERDURE_TRY(state, State::open(options, std::nullopt));
  return LogReader(std::move(state));
}

Result<std::unique_ptr<LogReader::State, LogReader::Delete>> LogReader::State::open(
    const LogReaderOptions& options, std::optional<std::uint64_t> log_id) {
  std::unique_ptr<State, Delete> state(new State);
  PERDURE_TRY_VOID(state->dialer.use_rnic(options.rnic));
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::string& address : options.peers) {
    PERDURE_TRY(peer, state->dialer.dial(address, options.transport));
    peers.push_back(std::move(peer));
  }
  log::FailoverReader::Options reading;
  reading.pool = options.pool;
  reading.reading.from = options.from;
  reading.reading.from_index = options.from_index;
  reading.reading.uncommitted = options.uncommitted;
  reading.log_id = log_id;
  reading.timeout = bounded(options.timeout);
  PERDURE_TRY(reader,
              log::FailoverReader::open(std::move(peers), std::move(reading), Clock::monotonic()));
  state->reader.emplace(std::move(reader));
  return state;
}

LogReader::LogReader(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
LogReader::LogReader(LogReader&&) noexcept = default;
LogReader& LogReader::operator=(LogReader&&) noexcept = default;
LogReader::~LogReader() = default;

Result<void> LogReader::usable() const {
  if (state_ == nullptr) return Error{ErrorCode::InvalidArgument, "this reader was moved from"};
  if (state_->process == forks_so_far()) return {};
  return Error{ErrorCode::InvalidArgument,
               "this reader belongs to the parent process: after fork() the child opens its own"};
}

Result<std::optional<Record>> LogReader::next() {
  PERDURE_TRY_VOID(usable());
  return state_->reader->next();
}

Lsn LogReader::position() const { return usable() ? state_->reader->position() : Lsn{}; }
Lsn LogReader::committed() const { return usable() ? state_->reader->committed() : Lsn{}; }
LogEnd LogReader::end() const { return usable() ? state_->reader->end() : LogEnd::Clean; }
std::string LogReader::peer() const { return usable() ? state_->reader->peer() : std::string(); }

}  // namespace perdure
