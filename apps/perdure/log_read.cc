// `perdure log read` and `perdure log follow`: the records of a log, now or as they come.
#include "core/clock.h"
#include "core/try.h"
#include "log_commands.h"
#include "missing_pool.h"
#include "output.h"
#include "record_writer.h"
#include "replica_survey.h"
#include "signals.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

namespace perdure::app {
namespace {

constexpr int kBackoffMsMax = 20;

struct ReadCommand {
  PeerOptions peers;
  RecordWriterOptions output;
  std::uint64_t from = 0;
  std::uint64_t from_index = 0;
  std::uint64_t records_max = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t idle_exit_ms = 0;  // follow; 0: never
  bool uncommitted = false;
};

/// `peer` is one of the command's.
LogReaderOptions reader_options(const ReadCommand& command, const std::string& peer) {
  LogReaderOptions options;
  options.peers = {peer};
  options.pool = command.peers.pool;
  options.transport = command.peers.transport;
  options.rnic.name = command.peers.rnic;
  options.from = Lsn{command.from};
  options.uncommitted = command.uncommitted;
  options.timeout = command.peers.timeout();
  return options;
}

/// Says so where what follows may lack committed records: a quorum of the log may have some that
/// none of those has which were read.
void warn_of_missing_votes(const ReplicaSurvey& survey, const std::string& reasons) {
  const log::Choice choice = survey.choice();
  if (choice.history) return;
  std::string unasked;
  for (const std::string& name : survey.not_asked()) {
    unasked += (unasked.empty() ? "; not asked: " : ", ") + name;
  }
  const log::Configuration log = survey.configurations().back();
  const std::string why =
      choice.voters < choice.needed
          ? fmt::format("{} of its {} replicas can say what is committed, and it takes {}",
                        choice.voters, log.members.size(), choice.needed)
          : fmt::format("something up to LSN {} was committed, and can not be read",
                        choice.claimed.value);
  print_warning(
      fmt::format("committed records may be missing from what follows: the log has a "
                  "quorum of {}, {}{}{}",
                  log.quorum, why, unasked, reasons));
}

/// Of several peers, the one that holds the log's history: one that was down may lack records.
Result<std::string> choose_peer(const ReadCommand& command) {
  const std::vector<std::string>& peers = command.peers.peers;
  ReplicaSurvey survey;
  survey.open_peers(command.peers);
  if (const auto missing = survey.missing_pool()) return *missing;
  if (peers.size() == 1) {
    survey.read_starts();
    if (survey.best()) warn_of_missing_votes(survey, "");
    return peers.front();
  }
  survey.read_all();
  std::size_t answered = 0;
  bool other_version = false;
  std::string reasons;
  for (const SurveyedReplica& replica : survey.replicas()) {
    answered += replica.survey ? 1 : 0;
    other_version =
        other_version || (replica.error && replica.error->code == ErrorCode::VersionMismatch);
    if (replica.error) reasons += fmt::format("; {}: {}", replica.name, replica.error->message);
  }
  const auto best = survey.best();
  if (!best) {
    const ErrorCode alone = answered == 0 ? ErrorCode::Disconnected : ErrorCode::NotFound;
    return Error{other_version ? ErrorCode::VersionMismatch : alone,
                 fmt::format("no replica of '{}' can be read{}{}", command.peers.pool,
                             answered == 0 ? "" : ": none holds a log yet", reasons)};
  }
  PERDURE_TRY_VOID(survey.require_one_log(command.peers.pool));
  warn_of_missing_votes(survey, reasons);
  return survey.replicas()[*best].name;
}

/// Writes the next record, if there is one. False: this was the end.
Result<bool> write_next(LogReader& reader, const ReadCommand& command, std::uint64_t& written) {
  auto record = reader.next();
  if (!record.ok()) return record.error();
  if (!record->has_value()) return false;
  if ((*record)->index < command.from_index) return true;
  write_record(**record, command.output);
  ++written;
  return true;
}

ExitStatus run_read(const ReadCommand& command) {
  const auto peer = choose_peer(command);
  if (!peer.ok()) return fail(explain_missing_pool(peer.error(), command.peers));
  auto reader = LogReader::open(reader_options(command, *peer));
  if (!reader.ok()) return fail(explain_missing_pool(reader.error(), command.peers));
  std::uint64_t written = 0;
  while (written < command.records_max) {
    const auto more = write_next(*reader, command, written);
    if (!more.ok()) return fail(more.error());
    if (*more) continue;
    if (reader->end() == LogEnd::Torn) {
      print_warning(
          fmt::format("the bytes at LSN {} of {} are no whole record: the end of the log, "
                      "cut off by a crash, or damage; `perdure log verify` with all "
                      "peers tells which",
                      reader->position().value, *peer));
    }
    break;
  }
  return ExitStatus::Ok;
}

/// The log from the best replica, and from the others when that one is lost.
class Follower {
 public:
  Follower(const ReadCommand& command, LogReader reader)
      : command_(command), reader_(std::move(reader)) {}

  ExitStatus run() {
    while (written_ < command_.records_max && signals_received() == 0 && !idle()) {
      if (const auto stepped = step(); !stepped.ok()) {
        return fail(explain_missing_pool(stepped.error(), command_.peers));
      }
    }
    return ExitStatus::Ok;
  }

 private:
  /// One record, or one look at the end.
  Result<void> step() {
    const auto more = write_next(reader_, command_, written_);
    if (!more.ok()) return lost(more.error());
    lost_since_.reset();
    if (*more) {
      quiet_since_.reset();
      backoff_ms_ = 0;
    } else {
      if (!quiet_since_) quiet_since_ = Clock::monotonic().now();
      rest();
    }
    return {};
  }

  /// No peer can be read. Errors: those that waiting would not help.
  Result<void> lost(const Error& error) {
    const bool may_return = error.code == ErrorCode::Disconnected ||
                            error.code == ErrorCode::TimedOut ||
                            error.code == ErrorCode::Busy;  // it is being brought to equal
    const Nanoseconds now = Clock::monotonic().now();
    if (!may_return || (lost_since_ && now - *lost_since_ > kAwayMax)) return error;
    if (!lost_since_) {
      lost_since_ = now;
      print_warning(fmt::format("{}; reading goes on at LSN {} when a peer answers", error.message,
                                reader_.position().value));
    }
    rest();
    return {};
  }

  void rest() {
    flush_output();
    backoff_ms_ = std::min(kBackoffMsMax, backoff_ms_ == 0 ? 1 : backoff_ms_ * 2);
    (void)::poll(nullptr, 0, backoff_ms_);  // a signal ends it
  }

  /// Counts from a look that found no more: however long connecting takes, there is one.
  bool idle() const {
    const auto limit = std::chrono::milliseconds(command_.idle_exit_ms);
    return limit.count() != 0 && quiet_since_ && Clock::monotonic().now() - *quiet_since_ > limit;
  }

  static constexpr Nanoseconds kAwayMax = std::chrono::seconds(30);

  const ReadCommand& command_;
  LogReader reader_;
  std::uint64_t written_ = 0;
  int backoff_ms_ = 0;
  std::optional<Nanoseconds> quiet_since_;
  std::optional<Nanoseconds> lost_since_;
};

ExitStatus run_follow(const ReadCommand& command) {
  const auto peer = choose_peer(command);
  if (!peer.ok()) return fail(explain_missing_pool(peer.error(), command.peers));
  LogReaderOptions options = reader_options(command, *peer);
  for (const std::string& other : command.peers.peers) {
    if (other != *peer && !command.uncommitted) options.peers.push_back(other);
  }
  auto reader = LogReader::open(std::move(options));
  if (!reader.ok()) return fail(explain_missing_pool(reader.error(), command.peers));
  return Follower(command, std::move(*reader)).run();
}

void add_read_options(Command command, ReadCommand& options) {
  add_peers_option(command, options.peers)
      .description("The peers; of several, the one that holds most is read");
  add_pool_option(command, options.peers);
  add_transport_option(command, options.peers);
  add_timeout_option(command, options.peers);
  command.add_option("--from", options.from, "Begin at the record with this LSN (the oldest)")
      .option_text("LSN");
  command.add_option("--from-index", options.from_index, "Leave out records before this index (0)")
      .option_text("INDEX");
  command.add_option("--max", options.records_max, "End after so many records")
      .range(std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max())
      .option_text("N");
  RecordWriterOptions& output = options.output;
  const Option framed = command.add_flag(
      "--framed", output.framed, "Each record as a u32 little-endian length, then the bytes");
  const Option raw =
      command.add_flag("--raw", output.raw, "The bytes of the records, nothing between");
  const Option index = command.add_flag("--index", output.index, "Begin each line with the index");
  const Option lsn = command.add_flag("--lsn", output.lsn, "Begin each line with the LSN");
  framed.excludes(raw).excludes(index).excludes(lsn);
  raw.excludes(index).excludes(lsn);
  command.add_flag("--uncommitted", options.uncommitted,
                   "Also records that are not known to be committed yet: a new writer may replace "
                   "them");
  add_format_option(command, output.format);
}

}  // namespace

void add_log_read(Command log) {
  const auto read = std::make_shared<ReadCommand>();
  const Command command = log.add_subcommand("read", "Print the records of a log, oldest first");
  add_read_options(command, *read);
  add_examples(command,
               "  perdure log read --peers 127.0.0.1:7470 --pool orders --max 10 --index\n"
               "  perdure log read --peers a:7470,b:7470,c:7470 --pool orders --framed > copy.bin\n"
               "With --format json each record is an object on a line of its own.");
  run_with(command, [read] { return run_read(*read); });

  const auto follow = std::make_shared<ReadCommand>();
  const Command following =
      log.add_subcommand("follow", "Print the records of a log as they are appended");
  add_read_options(following, *follow);
  following
      .add_option("--idle-exit-ms", follow->idle_exit_ms, "End when nothing came for this long")
      .option_text("MS");
  add_examples(following,
               "  perdure log follow --peers a:7470,b:7470,c:7470 --pool audit --lsn\n"
               "Only what is committed is printed.\n"
               "SIGINT and SIGTERM end it with status 0.");
  run_with(following, [follow] {
    count_signals();
    return run_follow(*follow);
  });
}

}  // namespace perdure::app
