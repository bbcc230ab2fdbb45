// ReplicatedLog: the writer. Encodes records into staging, drives its replicas, and knows what is
// committed. include/perdure/log.h is its public face; here peers are passed in, so that tests
// can run it on the emulated fabric.
#pragma once

#include <perdure/log.h>

#include "client/remote_bytes.h"
#include "core/clock.h"
#include "log/log_scan.h"
#include "log/recovery.h"
#include "log/replica.h"
#include "log/staging.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace perdure::log {

struct WriterOptions {
  std::string pool;
  std::size_t quorum = 0;         // 0: a majority
  std::optional<LogShape> shape;  // nothing: what is there; for a new log Singleton, which
                                  // costs what Compound costs without its second item
  std::optional<Primary> primary;
  Level level = Level::Durable;
  std::uint64_t record_bytes_max = kPayloadBytesMax;
  std::size_t batches_in_flight = 4;
  bool measure_costs = true;
  bool take_over = false;
  bool accept_loss = false;
  std::string writer_name;
  std::uint64_t writer = 0;  // 0: drawn at random
  Nanoseconds stall = std::chrono::seconds(5);
  Nanoseconds reconnect{0};  // 0: never
  Nanoseconds spin = std::chrono::microseconds(200);
};

/// Threads: one caller at a time.
class ReplicatedLog {
 public:
  /// `clock` must outlive it. See Log::open for the errors.
  static Result<std::unique_ptr<ReplicatedLog>> open(
      std::vector<std::unique_ptr<client::Peer>> peers, const WriterOptions& options,
      const Clock& clock);

  Result<Ticket> append(std::span<const std::byte> record);
  Result<void> wait(const Ticket& ticket, Level level, Nanoseconds timeout);
  Result<void> poll();
  Result<void> trim(Lsn lsn);
  std::vector<RepairReport> repair();
  std::vector<RepairReport> take_repairs() { return std::exchange(repairs_, {}); }
  LogStatus status() const;

  /// Whether everything before the ticket's end is at `level`, as far as was learned by now.
  bool reached(const Ticket& ticket, Level level) const;

 private:
  ReplicatedLog(const WriterOptions& options, const Clock& clock);

  Result<void> open_sessions();
  Result<void> choose_epoch();
  Result<void> open_history();
  Result<void> start_log();
  Result<void> adopt_history(std::vector<std::optional<Survey>>& surveys,
                             std::vector<std::unique_ptr<client::RemoteBytes>>& bytes);
  Result<void> check_same_log(const std::vector<std::optional<Survey>>& surveys);
  bool make_equal(std::size_t best, std::vector<std::optional<Survey>>& surveys,
                  std::vector<std::unique_ptr<client::RemoteBytes>>& bytes);
  Result<void> begin_epoch();
  Error too_few(std::string_view doing);
  Result<Ticket> append_record(RecordType type, std::span<const std::byte> payload);
  Result<std::byte*> make_room(std::uint64_t bytes);
  void encode(RecordType type, std::span<const std::byte> payload, std::byte* to);
  /// Whether the next record fits before the end of the ring, and into what is free of it.
  bool fits_here(std::uint64_t needed, std::uint64_t kept_free) const {
    const std::uint64_t ring = anchor_.ring_bytes;
    return needed <= ring - tail_.value % ring &&
           tail_.value + needed + kept_free <= head_.value + ring;
  }
  Result<void> pad_to_lap(std::uint64_t needed, std::uint64_t kept_free);
  RepairReport bring_back(Replica& replica);
  bool may_come_back() const {
    return options_.reconnect > Nanoseconds{0} && !(lost_ && lost_->code == ErrorCode::Fenced);
  }
  void reconnect(Nanoseconds now);
  Result<void> repair_replica(Replica& replica, RepairReport& report);
  Result<void> catch_up(Replica& replica, const Survey& found);
  Result<void> drain(Replica& replica);
  Result<void> require_record_at(Lsn lsn);
  void offer();
  void pump();
  void look_at_connections(Nanoseconds sleep);
  std::size_t needed_to_open() const;
  void update_committed();
  bool quorum_stands() const { return up_count() >= quorum_; }
  Error quorum_lost();
  std::size_t up_count() const {
    std::size_t count = 0;
    for (const Replica& replica : replicas_) count += replica.sending() ? 1 : 0;
    return count;
  }
  control::SessionRequest session_request() const;

  const WriterOptions options_;
  const Clock& clock_;
  Nanoseconds last_look_{0};
  Nanoseconds last_offer_look_{0};
  std::uint32_t offers_ = 0;  // that found an answer due
  std::size_t quorum_ = 0;
  std::vector<Replica> replicas_;
  Staging staging_;
  Anchor anchor_;
  std::uint64_t payload_max_ = 0;  // of one record
  Epoch epoch_;
  std::uint64_t writer_ = 0;
  Lsn head_ = kFirstLsn;
  Lsn tail_ = kFirstLsn;
  Lsn committed_ = kFirstLsn;
  Lsn durable_anywhere_ = kFirstLsn;  // on at least one replica
  std::uint64_t next_index_ = 0;
  std::uint32_t last_crc_ = 0;
  std::vector<Lsn> durable_scratch_;   // update_committed
  std::optional<Error> lost_;          // why the quorum is lost, once asked
  std::vector<RepairReport> repairs_;  // that nobody has asked for yet
};

}  // namespace perdure::log
