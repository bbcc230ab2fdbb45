// CommittedReader: the records of one replica, in order, as they become committed. It holds back
// what is not known to be, and notices when the replica was trimmed, replaced or is being repaired.
#pragma once

#include <perdure/log.h>

#include "log/log_scan.h"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace perdure::log {

/// Threads: one caller at a time.
class CommittedReader {
 public:
  struct Options {
    Lsn from;                      // 0: the oldest record
    bool uncommitted = false;      // hold nothing back
    std::string name;              // of the replica, for messages
    std::uint64_t from_index = 0;  // records before it are left out
  };
  /// How far a log was read, on whatever replica.
  struct Place {
    std::uint64_t log_id = 0;
    Boundary after;
    Epoch loss;  // the accepted loss that was known when it was read; 0: none
  };

  /// `bytes` must outlive it. Errors: those of LogReader::open and of reading.
  static Result<CommittedReader> open(ByteSource& bytes, const Options& options);
  /// Goes on with another replica from where a reader was. What comes next must follow the record
  /// that was returned last, so a replica with another history has nothing to return; where a later
  /// writer's history has replaced what was returned, the first next() says so.
  /// Errors: those of open and next.
  static Result<CommittedReader> resume(ByteSource& bytes, const Options& options,
                                        const Place& place);

  /// See LogReader::next.
  Result<std::optional<Record>> next();

  Lsn position() const { return position_; }
  Place place() const { return {state_.anchor.log_id, returned_, loss_}; }
  Lsn committed() const { return committed_; }
  LogEnd end() const { return cursor_.end(); }
  /// Whether what was returned is no part of the log any more, by what a later writer has made of
  /// it: next() says so from now on. Of committed records no replica will say anything else.
  bool replaced() const { return replaced_.has_value(); }
  /// The same by an accepted loss of which one replica may be all there is: next() says so until
  /// this one says otherwise. Only a replica of a later epoch knows.
  bool undecided() const { return undecided_; }
  Epoch epoch() const { return state_.epoch; }
  /// Whether it has found records that are not known to be committed.
  bool holds_back() const { return !held_.empty(); }

 private:
  /// A record that is held back, or what stands between two of them.
  struct Held {
    RecordHeader header;
    std::vector<std::byte> bytes;
    Boundary after;
  };

  CommittedReader(ByteSource& bytes, const Options& options, const LogState& state,
                  const LogCursor& cursor);
  Result<bool> look_again();
  Result<void> look_whether_decided();
  Result<void> follow_state(const LogState& now);
  bool is_kept(const LogState& now) const;
  Error note_replaced();
  Result<void> require_returned();
  void restart();
  void pass(const RecordHeader& header, const Boundary& after);
  bool may_return(Lsn end) const { return options_.uncommitted || end <= committed_; }
  bool is_wanted(const RecordHeader& header) const {
    return header.type == RecordType::Data && header.index >= options_.from_index;
  }

  ByteSource* bytes_;
  Options options_;
  LogState state_;
  LogCursor cursor_;
  Lsn position_;       // behind the last record that was returned or passed over
  Boundary returned_;  // behind the last data record of these: nobody has lost a pad
  Epoch loss_;         // the accepted loss that was known when that was read
  Lsn committed_;
  std::deque<Held> held_;
  std::uint64_t held_bytes_ = 0;
  std::vector<std::byte> current_;  // that was held back and is returned now
  std::optional<Error> replaced_;   // what was returned; said for ever
  bool undecided_ = false;
};

}  // namespace perdure::log
