// The public face of the log: peers by address, words instead of enumerators.
#include <perdure/log.h>

#include <fmt/format.h>

#include <algorithm>

#include "client/dial.h"
#include "client/remote_bytes.h"
#include "core/try.h"
#include "log/replicated_log.h"

namespace perdure {
namespace {

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
  writer.writer_name = options.writer_name;
  writer.stall = options.stall;
  writer.reconnect = options.reconnect;
  writer.spin = options.spin;
  return writer;
}

}  // namespace

class Log::State {
 public:
  client::Dialer dialer;  // owns the devices: outlives the log's connections
  std::unique_ptr<log::ReplicatedLog> log;
};

Result<Log> Log::open(LogOptions options) {
  PERDURE_TRY(writer, writer_options(options));
  PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
  auto state = std::make_unique<State>();
  state->dialer.use_rnic(options.rnic);
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

Result<void> Log::poll() { return state_->log->poll(); }

bool Log::reached(const Ticket& ticket, Level level) const {
  return state_->log->reached(ticket, level);
}

Result<void> Log::trim(Lsn lsn) { return state_->log->trim(lsn); }
std::vector<RepairReport> Log::repair() { return state_->log->repair(); }
std::vector<RepairReport> Log::take_repairs() { return state_->log->take_repairs(); }
LogStatus Log::status() const { return state_->log->status(); }

class LogReader::State {
 public:
  client::Dialer dialer;
  std::unique_ptr<client::HttpPeer> peer;
  std::unique_ptr<client::RemoteBytes> bytes;
  log::LogStart start;
  std::optional<log::LogCursor> cursor;
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
  PERDURE_TRY(start, log::read_start(*state->bytes));
  if (!start.anchor) {
    return Error{ErrorCode::NotFound,
                 fmt::format("pool '{}' on {} holds no log yet; the first append creates it",
                             options.pool, options.peer)};
  }
  const Lsn from = options.from.value == 0 ? start.head : options.from;
  if (from < start.head || from.value % log::kRecordAlignment != 0) {
    return Error{ErrorCode::NotFound,
                 fmt::format("no record at {}: the log begins at {} (older ones were trimmed)",
                             from.value, start.head.value)};
  }
  state->start = start;
  state->cursor.emplace(*state->bytes, *start.anchor, start.head, from);
  return LogReader(std::move(state));
}

LogReader::LogReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogReader::LogReader(LogReader&&) noexcept = default;
LogReader& LogReader::operator=(LogReader&&) noexcept = default;
LogReader::~LogReader() = default;

Result<std::optional<Record>> LogReader::next() {
  while (true) {
    PERDURE_TRY(view, state_->cursor->next());
    if (!view) return at_end();
    if (view->header.type != log::RecordType::Data) continue;
    return std::optional<Record>{
        Record{view->header.lsn, view->header.index, view->header.epoch, view->payload}};
  }
}

/// Nothing more was found: because there is no more, or because it was trimmed or damaged.
Result<std::optional<Record>> LogReader::at_end() {
  PERDURE_TRY(now, log::read_start(*state_->bytes));
  const Lsn position = state_->cursor->position();
  if (position < now.head) {
    return Error{ErrorCode::NotFound,
                 fmt::format("the record at {} was trimmed; the log now begins at {}",
                             position.value, now.head.value)};
  }
  state_->cursor->set_head(now.head);
  if (now.tail_word && *now.tail_word > position) {
    // It may have become readable between the two looks; only a second failure is damage.
    PERDURE_TRY(again, state_->cursor->next());
    if (again && again->header.type == log::RecordType::Data) {
      return std::optional<Record>{
          Record{again->header.lsn, again->header.index, again->header.epoch, again->payload}};
    }
    if (!again) {
      return Error{
          ErrorCode::Corrupt,
          fmt::format("records up to {} were durable on this replica, but the one at {} "
                      "can not be read ({}); read another replica and repair this one",
                      now.tail_word->value, position.value, to_string(state_->cursor->end()))};
    }
  }
  return std::optional<Record>{};
}

Lsn LogReader::position() const { return state_->cursor->position(); }
std::string LogReader::end() const { return std::string(to_string(state_->cursor->end())); }

}  // namespace perdure
