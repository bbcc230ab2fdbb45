// FailoverReader: the committed records of a log, each once, from whichever of its replicas can be
// read. One replica is read at a time; what is known of the place in the log goes from one to the
// next, what is known to be committed does not: a replica that was left behind may hold other
// records there. What each says of its own records is true of them: docs/log-protocol.md.
#pragma once

#include <perdure/log.h>

#include "client/peer.h"
#include "client/remote_bytes.h"
#include "core/clock.h"
#include "log/committed_reader.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::log {

/// Threads: one caller at a time.
class FailoverReader {
 public:
  struct Options {
    std::string pool;
    CommittedReader::Options reading;  // its name is filled in
    Nanoseconds timeout = std::chrono::seconds(5);
    std::optional<std::uint64_t> log_id = {};  // what is to be read; nothing: whatever is there
  };

  /// `clock` must outlive it. Errors: see LogReader::open.
  static Result<FailoverReader> open(std::vector<std::unique_ptr<client::Peer>> peers,
                                     Options options, const Clock& clock);

  /// See LogReader::next.
  Result<std::optional<Record>> next();

  Lsn position() const { return reader() ? reader()->position() : place_->after.lsn; }
  Lsn committed() const {
    return reader() ? std::max(committed_, reader()->committed()) : committed_;
  }
  LogEnd end() const { return reader() ? reader()->end() : LogEnd::Clean; }
  /// Empty while none can be read.
  std::string peer() const { return reader() ? replicas_[current_].peer->name() : std::string(); }

 private:
  /// Why a replica could not be read.
  struct Failure {
    Error error;
    bool trimmed = false;  // the log goes on, and the next record is not in it any more
    bool other_log = false;
    Nanoseconds at{0};
    Nanoseconds took{0};
  };
  struct Replica {
    std::unique_ptr<client::Peer> peer;
    std::unique_ptr<client::RemoteBytes> bytes;
    std::optional<CommittedReader> reader;
    std::optional<Failure> failure;  // of the last try

    /// Its last answer decides for all of them: what was returned is not in the log any more, or
    /// that is what one of a later epoch has to tell.
    bool says_replaced() const { return reader && (reader->replaced() || reader->undecided()); }
  };

  FailoverReader(Options options, const Clock& clock)
      : options_(std::move(options)), clock_(&clock) {}

  const std::optional<CommittedReader>& reader() const { return replicas_[current_].reader; }
  Result<void> enter(Replica& replica);
  Result<void> require_one_log();
  Error different_logs(const Replica& other) const;
  Result<std::optional<Record>> try_next(Replica& replica);
  Result<std::optional<Record>> read_another();
  Result<std::optional<Record>> read_later(Error undecided);
  Result<std::optional<Record>> look_around();
  void leave(Replica& replica);
  void take(std::size_t index);
  void note_failure(Replica& replica, Error why, bool trimmed, Nanoseconds since);
  Error none_readable() const;

  Options options_;
  const Clock* clock_;
  std::vector<Replica> replicas_;
  std::size_t current_ = 0;
  std::optional<CommittedReader::Place> place_;  // when a replica was left last; set by open
  Lsn committed_;                                // as far as those that were left have said
  Epoch left_;                                   // of the one that was left last
  Epoch not_before_;  // of a replica that is read: one of it says that a loss was accepted
  Nanoseconds looked_around_{0};
};

}  // namespace perdure::log
