// REMOTELOG, the taxonomy's benchmark (taxonomy paper, section 4.1): a client appends records to a
// log in a server's memory, by the method of each configuration of the paper's tables 2 and 3.
//
//   singleton   the record carries its checksum; the tail is where the checksum fails
//   compound    the record, then the tail word; the one must be durable before the other
//
// The log in the exported memory of a server:
//
//   offset  size  field
//   0       8     tail word: how many records the log has (compound only)
//   4096    ring  slots, a multiple of 64 bytes each; record k is in slot k mod slots
//
// Record: crc32c of all that follows (u32), bytes (u32), number (u64), payload. A crash leaves any
// part of a record that was not durable; the checksum tells.
#pragma once

#include <perdure/result.h>

#include "core/bytes.h"
#include "persist/requester.h"
#include "plan/render.h"
#include "report/histogram.h"
#include "report/setup.h"
#include "report/table.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::report {
class ReportPage;
}  // namespace perdure::report

namespace perdure::bench {

enum class RemotelogFabric { Emu, Tcp, Shm, Verbs };

std::string_view to_string(RemotelogFabric fabric);
report::Origin origin_of(RemotelogFabric fabric);

/// The log's place and sizes.
struct RemotelogLayout {
  static constexpr std::uint64_t kTailAt = 0;
  static constexpr std::uint64_t kRingAt = 4096;
  static constexpr std::uint64_t kRecordBytesMin = 16;

  std::uint64_t record_bytes = 64;
  std::uint64_t slots = 4096;

  std::uint64_t slot_bytes() const { return round_up(record_bytes, kCacheLineBytes); }
  std::uint64_t exported_bytes() const { return round_up(kRingAt + slots * slot_bytes(), 4096); }
  std::uint64_t slot_at(std::uint64_t number) const {
    return kRingAt + number % slots * slot_bytes();
  }
};

/// What is run for every configuration.
struct RemotelogOptions {
  std::uint64_t records = 10'000;
  std::uint64_t warm_up = 200;  // records before those, not counted
  std::uint64_t record_bytes = 64;
  std::size_t window = 1;    // records in flight
  std::size_t replicas = 1;  // each record must be durable on all
  std::uint64_t seed = 1;

  RemotelogLayout layout() const;
  std::uint64_t all_records() const { return records + warm_up; }
};

/// One configuration and what came of it.
struct RemotelogRow {
  RemotelogFabric fabric = RemotelogFabric::Emu;
  plan::Source source = plan::Source::Paper;  // whose method
  plan::Scenario scenario;
  RemotelogOptions options;
  report::Histogram latencies;
  double seconds = 0;         // of the records counted, by the clock of the fabric
  std::uint64_t checked = 0;  // records found whole at the end; after a power cut where emulated
  std::string failure;        // empty: it went through and nothing was missing
  bool lost_records = false;  // it failed since what was acknowledged was not there at the end

  void fail(const Error& error) {
    failure = error.message;
    lost_records = error.code == ErrorCode::Corrupt;
  }
  double records_per_second() const;
  /// "emu/dmp/ddio-on/rq-dram/write/singleton".
  std::string configuration() const;
  /// Of the configuration and the options.
  std::string hash() const;
};

/// Told how far the records of one configuration are.
using RemotelogProgress = std::function<void(std::uint64_t records)>;

/// The client: appends through requesters, one for each replica, and measures.
class RemotelogClient {
 public:
  /// One replica. Its requester runs one method (index 0).
  struct Replica {
    persist::Requester* requester = nullptr;
    fabric::Device* device = nullptr;
  };

  /// Errors: those of registration.
  static Result<std::unique_ptr<RemotelogClient>> open(const std::vector<Replica>& replicas,
                                                       const Method& method,
                                                       const RemotelogOptions& options);

  /// Appends all records and fills in latencies and seconds of the row.
  /// Errors: those of the requesters; TimedOut when nothing moves for long; SystemError when
  /// interrupted.
  Result<void> run(const Clock& clock, RemotelogRow& row, const RemotelogProgress& progress);

 private:
  RemotelogClient(const std::vector<Replica>& replicas, const Method& method,
                  const RemotelogOptions& options);
  Result<bool> begin(std::uint64_t number);
  std::uint64_t resolved() const;
  std::byte* source(std::uint64_t number) {
    return source_.data() + number % options_.window * (options_.layout().slot_bytes() + 64);
  }

  const std::vector<Replica> replicas_;
  const RemotelogOptions options_;
  const std::size_t items_;
  std::vector<std::byte> source_;  // `window` records, each with its tail word
  std::vector<std::unique_ptr<fabric::Memory>> memories_;  // the same, registered for each replica
  std::vector<std::uint64_t> begun_;                       // by replica
  std::vector<Nanoseconds> started_;
};

/// Whether the exported bytes hold every record that must still be there, and the tail word.
/// Returns how many records that are. Errors: Corrupt, naming the first that is missing.
Result<std::uint64_t> check_remotelog(std::span<const std::byte> exported, const Method& method,
                                      const RemotelogOptions& options);

/// Runs one configuration in an emulated world. At the end the servers lose their power and what
/// is left is checked. Never fails otherwise than in the row.
RemotelogRow run_emulated(const plan::Scenario& scenario, plan::Source source,
                          const RemotelogOptions& options, const RemotelogProgress& progress);

// --- results -------------------------------------------------------------------------------------

/// One row per configuration, everything.
report::Table remotelog_table(const std::vector<RemotelogRow>& rows);
/// Responders by operations: the median of each, as in figure 2 of the paper.
std::string remotelog_summary(const std::vector<RemotelogRow>& rows);
std::string remotelog_json(const std::vector<RemotelogRow>& rows, const report::Setup& setup);

void add_remotelog(report::ReportPage& page, const std::vector<RemotelogRow>& rows);

}  // namespace perdure::bench
