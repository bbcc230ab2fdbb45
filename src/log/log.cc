// The public face of the log: peers by address, words instead of enumerators.
#include <perdure/log.h>

#include <fmt/format.h>

#include <algorithm>

#include "client/dial.h"
#include "client/remote_bytes.h"
#include "core/try.h"
#include "log/committed_reader.h"
#include "log/replicated_log.h"

namespace perdure {
namespace {

/// How long the end of a log waits for replicas that lag.
constexpr Nanoseconds kCloseWithin = std::chrono::seconds(1);

Result<std::optional<log::LogShape>> parse_shape(const std::string& word) {
  using Shape = std::optional<log::LogShape>;
  if (word == "planned") return Shape{};
  if (word == "singleton") return Shape{log::LogShape::Singleton};
  if (word == "compound") return Shape{log::LogShape::Compound};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("log shape '{}'; use one of: planned, singleton, compound", word)};
}

Result<std::optional<Primary>> parse_primary(const std::string& word) {
  using Choice = std::optional<Primary>;
  if (word == "planned") return Choice{};
  for (const Primary primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
    if (to_string(primary) == word) return Choice{primary};
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("primary '{}'; use one of: planned, write, write_imm, send", word)};
}

Result<log::WriterOptions> writer_options(const LogOptions& options) {
  log::WriterOptions writer;
  writer.threads = true;
  PERDURE_TRY(shape, parse_shape(options.shape));
  PERDURE_TRY(primary, parse_primary(options.primary));
  writer.pool = options.pool;
  writer.quorum = options.quorum;
  writer.shape = shape;
  writer.primary = primary;
  writer.level = options.level;
  writer.record_bytes_max = options.record_bytes_max;
  writer.batches_in_flight = options.batches_in_flight;
  writer.measure_costs = options.measure_costs;
  writer.take_over = options.take_over;
  writer.accept_loss = options.accept_loss;
  writer.create = options.create;
  writer.partial = options.partial;
  writer.writer_name = options.writer_name;
  writer.replica_timeout = options.replica_timeout;
  writer.reconnect = options.reconnect;
  writer.spin = options.spin;
  return writer;
}

}  // namespace

class Log::State {
 public:
  client::Dialer dialer;  // owns the devices: outlives the log's connections
  control::TransportChoice transport;
  std::unique_ptr<log::ReplicatedLog> log;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// A program that ends without close() tells readers all the same what is committed.
  ~State() {
    if (log != nullptr && !closed) (void)log->close(kCloseWithin);
  }
  bool closed = false;
};

Result<Log> Log::open(LogOptions options) {
  PERDURE_TRY(writer, writer_options(options));
  PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
  auto state = std::make_unique<State>();
  state->dialer.use_rnic(options.rnic);
  state->transport = transport;
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::string& address : options.peers) {
    if (std::count(options.peers.begin(), options.peers.end(), address) > 1) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("peer {} is named twice; a replica counts once", address)};
    }
    PERDURE_TRY(peer, state->dialer.dial(address, transport));
    peers.push_back(std::move(peer));
  }
  PERDURE_TRY(log, log::ReplicatedLog::open(std::move(peers), writer, Clock::monotonic()));
  state->log = std::move(log);
  return Log(std::move(state));
}

Log::Log(std::unique_ptr<State> state) : state_(std::move(state)) {}
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;
Log::~Log() = default;

Result<Ticket> Log::append(std::span<const std::byte> record) {
  return state_->log->append(record);
}

Result<void> Log::wait(const Ticket& ticket, Level level, std::chrono::milliseconds timeout) {
  return state_->log->wait(ticket, level, timeout);
}

Result<void> Log::poll(std::chrono::milliseconds timeout) { return state_->log->poll(timeout); }

bool Log::reached(const Ticket& ticket, Level level) const {
  return state_->log->reached(ticket, level);
}

Result<void> Log::trim(Lsn lsn) { return state_->log->trim(lsn); }
std::vector<RepairReport> Log::repair(std::chrono::milliseconds timeout) {
  return state_->log->repair(timeout);
}
std::vector<RepairReport> Log::take_repairs() { return state_->log->take_repairs(); }
LogStatus Log::status() const { return state_->log->status(); }
Result<void> Log::close(std::chrono::milliseconds timeout) {
  state_->closed = true;
  return state_->log->close(timeout);
}

Result<void> Log::add_replica(const std::string& peer, std::size_t quorum) {
  PERDURE_TRY(dialled, state_->dialer.dial(peer, state_->transport));
  return state_->log->add_replica(std::move(dialled), quorum);
}

Result<void> Log::remove_replica(const std::string& which, std::size_t quorum) {
  return state_->log->remove_replica(which, quorum);
}

Result<void> Log::replace_replica(const std::string& which, const std::string& peer) {
  PERDURE_TRY(dialled, state_->dialer.dial(peer, state_->transport));
  return state_->log->replace_replica(which, std::move(dialled));
}

Result<void> Log::change_quorum(std::size_t quorum) { return state_->log->change_quorum(quorum); }

class LogReader::State {
 public:
  client::Dialer dialer;
  std::unique_ptr<client::HttpPeer> peer;
  std::unique_ptr<client::RemoteBytes> bytes;
  std::optional<log::CommittedReader> reader;
};

Result<LogReader> LogReader::open(LogReaderOptions options) {
  PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
  auto state = std::make_unique<State>();
  state->dialer.use_rnic(options.rnic);
  PERDURE_TRY(peer, state->dialer.dial(options.peer, transport));
  state->peer = std::move(peer);
  PERDURE_TRY(bytes, client::RemoteBytes::open(*state->peer, options.pool, options.timeout,
                                               Clock::monotonic()));
  state->bytes = std::move(bytes);
  log::CommittedReader::Options reading;
  reading.from = options.from;
  reading.uncommitted = options.uncommitted;
  reading.name = fmt::format("pool '{}' on {}", options.pool, options.peer);
  PERDURE_TRY(reader, log::CommittedReader::open(*state->bytes, reading));
  state->reader.emplace(std::move(reader));
  return LogReader(std::move(state));
}

LogReader::LogReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogReader::LogReader(LogReader&&) noexcept = default;
LogReader& LogReader::operator=(LogReader&&) noexcept = default;
LogReader::~LogReader() = default;

Result<std::optional<Record>> LogReader::next() { return state_->reader->next(); }
Lsn LogReader::position() const { return state_->reader->position(); }
Lsn LogReader::committed() const { return state_->reader->committed(); }
std::string LogReader::end() const { return std::string(to_string(state_->reader->end())); }

}  // namespace perdure
