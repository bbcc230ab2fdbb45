// LogJudge: what the contract of the replicated log (include/perdure/log.h, docs/log-protocol.md)
// promises, against what its users see. It knows nothing of rings, epochs records, sessions or how
// anything is recovered: only what was asked, what was answered, and what a reader returned.
//
//   committed-is-never-lost     what was acknowledged as committed is there after every opening, in
//                               its place, and a reader of an up-to-date replica returns it;
//                               so does one of a replica that was repaired, added or put in the
//                               place of another, from then on
//   trimmed-never-returns       what a successful trim forgot is never returned again
//   one-record-per-place        an LSN and an index name one committed record for ever
//   only-committed-is-read      what a reader returned is never replaced
//   no-second-writer-commits    what an older writer saw acknowledged as committed is in
//                               the history that the newer writer took over
//   only-replicas-count         a log opens with its own replicas and quorum, or says what it has
//   damage-is-never-returned    a reader returns what somebody appended there, byte for byte
//   durable-is-durable          what is acknowledged as durable survives a power failure of a
//                               replica; as committed, of the quorum
//   something-can-be-done       with enough whole replicas the log opens, takes records and trims
//   epochs-grow                 every opening has an epoch of its own, above all earlier ones
//   calls-keep-their-deadline   what takes a deadline returns by then; poll does not wait
#pragma once

#include <perdure/log.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "testing/torture/torture.h"

namespace perdure::test {

/// What identifies the bytes of a record, without keeping them.
struct Content {
  std::uint64_t hash = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Content&) const = default;
};

Content content_of(std::span<const std::byte> bytes);

/// A record as a reader returned it.
struct ReadRecord {
  Lsn lsn;
  std::uint64_t index = 0;
  Epoch epoch;
  Content content;
};

/// Threads: one.
class LogJudge final : public Judge {
 public:
  /// Numbers of successful openings, from 1 on.
  using Writer = std::uint32_t;

  /// Committed records may be lost from now on: more replicas are destroyed or damaged at a time
  /// than the quorum bears. Everything else still holds.
  void bear_loss() { loss_borne_ = true; }

  /// An operator accepted a loss, and was told that nobody knows what became of that, or nothing:
  /// the next opening decides.
  void loss_may_be_accepted() { loss_may_be_accepted_ = true; }

  Writer opened(const LogStatus& status);
  void appended(Writer writer, const Ticket& ticket, const Content& content);
  /// wait(Committed) returned, or reached() says so.
  void committed(Writer writer, const Ticket& ticket);
  void trim_begins(Writer writer, Lsn lsn);
  void trimmed(Writer writer, Lsn lsn);

  /// A reader, which began when `trimmed_before` was what trimmed_below() says, returned a record.
  /// `current`: of a replica that the newest writer calls up.
  void read(const ReadRecord& record, std::uint64_t trimmed_before, bool current);
  /// All that a replica holds which is up and equal for the writer that has just opened the log.
  void read_whole(const std::string& replica, const std::vector<ReadRecord>& records) {
    read_below(replica, records, recovered_below_);
  }
  /// All that a replica holds, committed or not, which the newest writer has just brought to equal.
  void read_brought(const std::string& replica, const std::vector<ReadRecord>& records) {
    read_below(replica, records, committed_below_);
  }
  /// A reader of such a replica was refused.
  void read_refused(const std::string& replica, const Error& error);

  void let_in(std::string story) { broken("only-replicas-count", std::move(story)); }
  void second_commit(std::string story) { broken("no-second-writer-commits", std::move(story)); }
  void not_durable(std::string story) { broken("durable-is-durable", std::move(story)); }
  void nothing_can_be_done(std::string story) { broken("something-can-be-done", std::move(story)); }
  void late(std::string story) { broken("calls-keep-their-deadline", std::move(story)); }

  /// Records with an index below are forgotten.
  std::uint64_t trimmed_below() const { return trimmed_index_; }
  /// Records with an index below are committed.
  std::uint64_t committed_below() const { return committed_below_; }
  /// Of them, those that a later committed record, or an opening, says were committed. Of the
  /// others one damaged replica alone can not tell whether they were ever whole
  /// (docs/log-protocol.md, what is not promised).
  std::uint64_t vouched_below() const { return vouched_below_; }
  /// Where a committed record begins that is kept, if it is known; for trims.
  std::optional<Lsn> place_of(std::uint64_t index) const;

 private:
  struct Attempt {
    Writer writer = 0;
    Lsn lsn;
    Lsn end;
    Content content;
    std::uint64_t vouches_below = 0;  // its writer knew that records below were committed
  };
  struct Life {
    Epoch epoch;
    std::uint64_t first_index = 0;  // of its own records
    std::uint64_t told_below = 0;   // its records below were acknowledged as committed
    Lsn tail;
  };
  struct FirstKept {
    std::uint64_t at_least = 0;
    std::uint64_t at_most = 0;
  };

  void require(bool holds, std::string_view law, const std::string& story) {
    if (!holds) broken(law, story);
  }
  void lost(std::string_view law, const std::string& story) {
    if (!loss_borne_) broken(law, story);
  }
  const Attempt* attempt_of(Writer writer, std::uint64_t index) const;
  const Attempt* matching(const ReadRecord& record) const;
  std::optional<bool> begins_before(std::uint64_t index, Lsn lsn) const;
  FirstKept first_kept(Writer writer, Lsn lsn) const;
  void decide(std::uint64_t index, const Attempt& attempt, std::string_view law,
              std::string_view by);
  std::uint64_t superseded_from(Writer writer) const;
  void check_opening(const LogStatus& status);
  void begin_anew(const LogStatus& status);
  bool given_up(const ReadRecord& record) const;
  void read_below(const std::string& replica, const std::vector<ReadRecord>& records,
                  std::uint64_t below);

  bool loss_borne_ = false;
  bool loss_may_be_accepted_ = false;
  Epoch loss_epoch_;             // of the newest writer that an operator let go on after a loss
  std::uint64_t loss_from_ = 0;  // records of lower epochs from here on were given up
  std::vector<Life> lives_;      // by Writer - 1
  std::vector<std::vector<Attempt>> attempts_;   // by index
  std::vector<std::optional<Attempt>> decided_;  // by index: committed
  std::map<std::uint64_t, Attempt> returned_;    // by index: a reader returned it
  std::uint64_t committed_below_ = 0;
  std::uint64_t vouched_below_ = 0;
  std::uint64_t recovered_below_ = 0;  // the newest opening took over records below
  Lsn committed_end_;
  std::uint64_t trimmed_index_ = 0;  // acknowledged
  Lsn trimmed_lsn_;
  std::uint64_t trim_index_max_ = 0;  // ever asked for
  Lsn trim_lsn_max_;
};

}  // namespace perdure::test
