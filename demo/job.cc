// The main job, step by step.
#include "demo/job.h"

#include "client/dial.h"
#include "core/assert.h"
#include "core/try.h"
#include "log/log_format.h"
#include "report/progress.h"
#include "testing/peer_process.h"
#include "testing/temporary_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace perdure::demo {
namespace {

constexpr std::size_t kPeers = 3;
constexpr std::size_t kQuorum = 2;
constexpr const char* kPool = "demo";
constexpr Nanoseconds kAnswerWithin = std::chrono::seconds(10);

class Job {
 public:
  Job(const JobOptions& options, const RecordText& text) : text_(text), progress_(options.records) {
    result_.options = options;
  }

  Result<JobResult> run() {
    PERDURE_TRY(directory, test::TemporaryDirectory::make(result_.options.directory));
    const auto done = run_in(directory.path());
    // Whatever went wrong: first the processes end, then their directories go.
    log_.reset();
    peers_.clear();
    progress_.clear();
    if (!done.ok()) return done.error();
    return std::move(result_);
  }

 private:
  Result<void> run_in(const std::string& directory) {
    PERDURE_TRY_VOID(start_peers(directory));
    PERDURE_TRY_VOID(open_log());
    result_.methods = methods_of(log_->status());
    result_.timeline = Timeline();
    Appender appender(*log_, text_, Clock::monotonic());
    appender.watch([this, &appender] { result_.timeline.sample(*log_, appender.committed()); });
    PERDURE_TRY_VOID(append_one_at_a_time(appender));
    PERDURE_TRY_VOID(append_many(appender));
    PERDURE_TRY_VOID(bring_back(appender));
    PERDURE_TRY_VOID(read_back());
    for (test::PeerProcess& peer : peers_) PERDURE_TRY_VOID(peer.stop());
    return {};
  }

  Result<void> start_peers(const std::string& directory) {
    for (std::size_t i = 0; i < kPeers; ++i) {
      test::PeerProcessOptions options;
      options.directory = fmt::format("{}/peer{}", directory, i + 1);
      options.declared = result_.options.declared;
      std::error_code ignored;
      std::filesystem::create_directories(options.directory, ignored);
      PERDURE_TRY(peer, test::PeerProcess::start(std::move(options)));
      peers_.push_back(std::move(peer));
    }
    return {};
  }

  Result<std::unique_ptr<client::HttpPeer>> dial(const test::PeerProcess& peer) {
    return dialer_.dial(peer.address(), result_.options.transport);
  }

  Result<void> open_log() {
    const std::uint64_t payload = text_.bytes(result_.options.records);
    const std::uint64_t log_bytes =
        payload + result_.options.records * (log::kRecordHeaderBytes + log::kRecordAlignment);
    std::vector<std::unique_ptr<client::Peer>> remote;
    for (const test::PeerProcess& process : peers_) {
      PERDURE_TRY(peer, dial(process));
      const control::PoolRequest request{kPool,
                                         log::kRingAt + log_bytes + log_bytes / 8 + (1u << 20)};
      PERDURE_TRY_VOID(peer->create(request, Deadline::after(kAnswerWithin)));
      remote.push_back(std::move(peer));
    }
    log::WriterOptions writer;
    writer.pool = kPool;
    writer.quorum = kQuorum;
    PERDURE_TRY(log, log::ReplicatedLog::open(std::move(remote), writer, Clock::monotonic()));
    log_ = std::move(log);
    result_.text_bytes = payload;
    return {};
  }

  Result<void> append_one_at_a_time(Appender& appender) {
    const JobOptions& options = result_.options;
    const Deadline enough = Deadline::after(options.one_at_a_time_for);
    const std::uint64_t most = std::min(options.one_at_a_time_max, options.records / 4);
    appender.measure_into(result_.one);
    while (appender.appended() < most && !enough.passed()) {
      PERDURE_TRY_VOID(appender.append(1));
      PERDURE_TRY_VOID(appender.drain());
    }
    result_.one_records = appender.committed();
    return {};
  }

  /// The rest, with a peer killed when half of all is committed.
  Result<void> append_many(Appender& appender) {
    const JobOptions& options = result_.options;
    appender.measure_into(result_.many);
    result_.timeline.mark(fmt::format("{} in flight", options.window), false);
    const std::uint64_t first = appender.committed();
    const Nanoseconds begun = Clock::monotonic().now();
    while (appender.appended() < options.records) {
      PERDURE_TRY_VOID(appender.append(options.window));
      if (result_.killed == 0 && appender.committed() >= options.records / 2) kill_one(appender);
      progress_.show(appender.committed(), options.name);
    }
    if (result_.killed == 0) kill_one(appender);
    PERDURE_TRY_VOID(appender.drain());
    result_.many_seconds = to_seconds(Clock::monotonic().now() - begun);
    result_.many_records = appender.committed() - first;
    result_.timeline.sample(*log_, appender.committed(), true);
    return {};
  }

  void kill_one(const Appender& appender) {
    test::PeerProcess& victim = peers_[result_.options.victim];
    result_.killed = victim.pid();
    result_.killed_after = appender.committed();
    result_.timeline.sample(*log_, appender.committed(), true);
    result_.timeline.mark(fmt::format("kill -9 peer {}", result_.options.victim + 1), true);
    victim.kill();
  }

  Result<void> bring_back(const Appender& appender) {
    const std::size_t victim = result_.options.victim;
    // The writer may not have used the connection since; a poll lets it see that it is gone.
    PERDURE_TRY_VOID(log_->poll());
    result_.noticed = log_->status().replicas[victim].down_reason;
    result_.timeline.mark(fmt::format("peer {} starts again", victim + 1), false);
    PERDURE_TRY_VOID(peers_[victim].start_again());
    result_.timeline.end_mark();
    result_.timeline.sample(*log_, appender.committed(), true);
    result_.timeline.mark("repair", false);
    const Nanoseconds begun = Clock::monotonic().now();
    const std::vector<RepairReport> reports = log_->repair();
    result_.repair_seconds = to_seconds(Clock::monotonic().now() - begun);
    result_.timeline.end_mark();
    result_.timeline.sample(*log_, appender.committed(), true);
    if (reports.empty()) {
      result_.repair.error = "there was nothing to repair: the log did not miss the peer";
    } else {
      result_.repair = reports.front();
    }
    return {};
  }

  Result<void> read_back() {
    // The quorum has everything. One that is slower may not, and then the log says so.
    const auto closed = log_->close(std::chrono::seconds(30));
    if (!closed.ok()) result_.lagging = closed.error().message;
    result_.closed = log_->status();
    log_.reset();  // readers come when the writer has gone
    for (const test::PeerProcess& process : peers_) {
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      PERDURE_TRY(peer, dial(process));
      result_.checks.push_back(
          check_replica(*peer, kPool, text_, result_.options.records, Clock::monotonic()));
    }
    return {};
  }

  const RecordText& text_;
  report::ProgressBar progress_;
  JobResult result_;
  client::Dialer dialer_;  // owns the devices of the log's connections
  std::vector<test::PeerProcess> peers_;
  std::unique_ptr<log::ReplicatedLog> log_;
};

std::vector<std::string> latency_row(std::string name, const report::Histogram& latencies) {
  return {std::move(name),
          report::grouped(latencies.count()),
          report::microseconds(latencies.quantile(0.5)),
          report::microseconds(latencies.quantile(0.99)),
          report::microseconds(latencies.quantile(0.999)),
          report::microseconds(latencies.max())};
}

}  // namespace

double JobResult::records_per_second() const {
  return many_seconds == 0 ? 0 : static_cast<double>(many_records) / many_seconds;
}

double JobResult::bytes_per_second() const {
  const double share = static_cast<double>(many_records) / static_cast<double>(options.records);
  return many_seconds == 0 ? 0 : static_cast<double>(text_bytes) * share / many_seconds;
}

Result<JobResult> run_job(const JobOptions& options, const RecordText& text) {
  PERDURE_ASSERT(options.records >= 4);
  PERDURE_ASSERT(options.victim < kPeers);
  return Job(options, text).run();
}

report::Table latency_table(const JobResult& result) {
  report::Table table{
      {{"append to", false}, {"n"}, {"p50, us"}, {"p99, us"}, {"p99.9, us"}, {"max, us"}}, {}};
  const std::string many = fmt::format("{} in flight", result.options.window);
  table.rows.push_back(latency_row("durable, one in flight", result.one.durable));
  table.rows.push_back(latency_row("committed, one in flight", result.one.committed));
  table.rows.push_back(latency_row("durable, " + many, result.many.durable));
  table.rows.push_back(latency_row("committed, " + many, result.many.committed));
  return table;
}

}  // namespace perdure::demo
