#include "bench/rpc_failures.h"

#include <perdure/rpc.h>

#include "bench/child.h"
#include "bench/server_process.h"
#include "bench/shared_memory.h"
#include "core/bytes.h"
#include "core/json.h"
#include "core/random.h"
#include "core/try.h"
#include "pmem/cache_flush.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>

namespace perdure::bench {
namespace {

constexpr std::uint32_t kRead = 1;
constexpr std::uint32_t kWrite = 2;
/// Writes of a run, at most: each has a byte that counts how often it was executed.
constexpr std::uint64_t kWritesMax = kRpcFailureWritesMax;
constexpr std::chrono::milliseconds kCallWithin = std::chrono::seconds(60);
constexpr std::uint64_t kObjects = 1024;
constexpr double kWritesSharedMost = 0.95;  // of the calls of a run, at most
constexpr std::array kAvailabilities{0.90, 0.99, 0.999, 0.9999};

struct FailureShared {
  std::array<char, 128> address{};
  std::array<char, 256> error{};
  std::atomic<bool> serving{false};
  std::atomic<bool> failed{false};
  std::atomic<bool> calling{false};
  std::atomic<bool> enough{false};
  std::array<std::atomic<std::uint8_t>, kWritesMax> executed;
};

void spin(Nanoseconds time) {
  const Deadline until = Deadline::after(time);
  while (!until.passed()) {
  }
}

/// The server's process, until it is killed.
class FailingServer {
 public:
  FailingServer(const RpcFailureOptions& options, const std::string& pool, FailureShared& shared)
      : options_(options), pool_(pool), shared_(shared) {}

  int live() {
    const auto server = RpcServer::open(server_options());
    if (!server.ok()) {
      std::strncpy(shared_.error.data(), server.error().message.c_str(), shared_.error.size() - 1);
      shared_.failed = true;
      return 1;
    }
    std::strncpy(shared_.address.data(), server->address().c_str(), shared_.address.size() - 1);
    shared_.serving = true;
    for (;;) ::pause();
  }

 private:
  RpcServerOptions server_options() {
    RpcServerOptions options;
    options.pool = pool_;
    options.data_bytes = kObjects * 1024;
    options.clients_max = 4;
    options.declared = PersistenceDomain::Dmp;
    const std::string before = shared_.address.data();
    options.listen = before.empty() ? "127.0.0.1:0" : before;
    options.data_listen = "127.0.0.1:0";
    options.handlers[kWrite] = [this](const RpcCall& call, RpcTransaction& data,
                                      std::span<std::byte>) -> Result<std::size_t> {
      spin(options_.work);
      count(call.payload);
      PERDURE_TRY_VOID(data.write(place_of(call.payload), call.payload));
      return std::size_t{0};
    };
    const auto read = [this](std::span<const std::byte> payload, const RpcData& data,
                             std::span<std::byte> reply) -> Result<std::size_t> {
      spin(options_.work);
      const std::size_t bytes = std::min<std::size_t>(options_.payload_bytes, reply.size());
      PERDURE_TRY_VOID(data.read(place_of(payload), reply.first(bytes)));
      return bytes;
    };
    options.queries[kRead] = read;
    // What a traditional RPC does: nothing is logged, and the effects are durable when it answers.
    options.queries[kWrite] = [this](std::span<const std::byte> payload, const RpcData&,
                                     std::span<std::byte>) -> Result<std::size_t> {
      spin(options_.work);
      count(payload);
      std::memcpy(unlogged_.data() + place_of(payload), payload.data(), payload.size());
      if (flush_.ok())
        flush_->lines(std::span(unlogged_).subspan(place_of(payload), payload.size()));
      pmem::store_fence();
      return std::size_t{0};
    };
    return options;
  }
  void count(std::span<const std::byte> payload) {
    const auto number = load<std::uint64_t>(payload.data());
    if (number < kWritesMax) ++shared_.executed[number];
  }
  std::uint64_t place_of(std::span<const std::byte> payload) const {
    return load<std::uint64_t>(payload.data()) % kObjects * 1024;
  }

  const RpcFailureOptions& options_;
  const std::string& pool_;
  FailureShared& shared_;
  const Result<pmem::CacheFlush> flush_ = pmem::CacheFlush::best();
  std::vector<std::byte> unlogged_ = std::vector<std::byte>(kObjects * 1024);
};

Result<void> await_serving(const FailureShared& shared) {
  const Deadline deadline = Deadline::after(kConnectsWithin);
  while (!shared.serving) {
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    if (shared.failed) return Error{ErrorCode::SystemError, shared.error.data()};
    if (deadline.passed()) return Error{ErrorCode::TimedOut, "the server of calls does not start"};
    test::pause_for(std::chrono::milliseconds(1));
  }
  return {};
}

/// The client's process.
class FailureClient {
 public:
  FailureClient(const RpcFailureOptions& options, bool relies_on_log, unsigned write_percent,
                FailureShared& shared)
      : options_(options),
        relies_on_log_(relies_on_log),
        write_percent_(write_percent),
        shared_(shared),
        random_(options.seed),
        payload_(options.payload_bytes, std::byte{0x5a}) {}

  Result<nlohmann::json> run() {
    RpcClientOptions client;
    client.server = shared_.address.data();
    client.name = relies_on_log_ ? "relies-on-log" : "sends-again";
    client.transport = options_.fabric == RpcFabric::Tcp ? Transport::Tcp : Transport::Shm;
    client.reconnect = options_.resend;
    client.spin = std::chrono::milliseconds(100);
    PERDURE_TRY(opened, RpcClient::open(std::move(client)));
    RpcClient& calls = opened;
    // Nothing fails yet: what a call takes.
    PERDURE_TRY(quiet,
                run_until(calls, [this](Nanoseconds since) { return since > options_.quiet; }));
    const RpcClientStatus before = calls.status();
    again_ = 0;
    shared_.calling = true;
    PERDURE_TRY(loud, run_until(calls, [this](Nanoseconds) { return shared_.enough.load(); }));
    const RpcClientStatus after = calls.status();
    std::uint64_t repeated = 0;
    for (std::uint64_t i = 0; i < writes_; ++i) {
      repeated += std::max<std::uint64_t>(shared_.executed[i], 1) - 1;
    }
    return nlohmann::json{{"calls", loud.calls},
                          {"seconds", loud.seconds},
                          {"call_us", quiet.seconds * 1e6 / static_cast<double>(quiet.calls)},
                          {"resent", after.resent - before.resent + again_},
                          {"repeated", repeated}};
  }

 private:
  struct Part {
    std::uint64_t calls = 0;
    double seconds = 0;
  };

  template <typename Enough>
  Result<Part> run_until(RpcClient& calls, const Enough& enough) {
    Part part;
    const Nanoseconds began = Clock::monotonic().now();
    std::optional<RpcHandle> last;
    while (!enough(Clock::monotonic().now() - began)) {
      ++part.calls;
      const bool is_write = random_.below(100) < write_percent_;
      if (is_write && writes_ == kWritesMax) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("a run has more than {} writes, and no more are counted; run it "
                                 "with fewer failures",
                                 report::grouped(kWritesMax))};
      }
      store(payload_.data(), is_write ? writes_++ : random_.below(kObjects));
      if (is_write && relies_on_log_) {
        PERDURE_TRY(handle, calls.call(kWrite, payload_));
        PERDURE_TRY_VOID(calls.wait(handle, RpcLevel::Durable, kCallWithin));
        last = handle;
        continue;
      }
      // A query that was on its way when the connection was lost is asked again.
      const std::uint64_t connections = calls.status().connections;
      const auto payload = std::span<const std::byte>(payload_);
      PERDURE_TRY_VOID(calls.query(is_write ? kWrite : kRead, is_write ? payload : payload.first(8),
                                   false, kCallWithin));
      if (is_write && calls.status().connections != connections) ++again_;
    }
    if (last) PERDURE_TRY_VOID(calls.wait(*last, RpcLevel::Applied, kCallWithin));
    part.seconds = to_seconds(Clock::monotonic().now() - began);
    return part;
  }

  const RpcFailureOptions& options_;
  const bool relies_on_log_;
  const unsigned write_percent_;
  FailureShared& shared_;
  Random random_;
  std::vector<std::byte> payload_;
  std::uint64_t writes_ = 0;
  std::uint64_t again_ = 0;
};

/// Kills the server again and again, and starts it.
class FailureSupervisor {
 public:
  FailureSupervisor(const RpcFailureOptions& options, const std::string& pool,
                    FailureShared& shared)
      : options_(options), pool_(pool), shared_(shared), random_(options.seed) {}

  Result<void> start() {
    shared_.serving = false;
    PERDURE_TRY(server, test::ChildProcess::fork(
                            [this] { return FailingServer(options_, pool_, shared_).live(); }));
    server_ = std::move(server);
    return await_serving(shared_);
  }

  /// Beside the client.
  Result<void> fail_and_come_back(pid_t client) {
    while (!shared_.calling) {
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      if (::kill(client, 0) != 0 || has_ended(client)) return {};  // it says why
      test::pause_for(std::chrono::milliseconds(5));
    }
    for (std::uint64_t i = 0; i < options_.failures; ++i) {
      test::pause_for(up());
      server_.kill();
      test::pause_for(options_.down);
      PERDURE_TRY_VOID(start());
    }
    test::pause_for(up());
    shared_.enough = true;
    return {};
  }

 private:
  /// Exponential, so that failures come at no time of their own; not longer than five times the
  /// average.
  Nanoseconds up() {
    const double uniform = static_cast<double>(1 + random_.below(1'000'000)) / 1'000'001;
    const double times = std::min(-std::log(uniform), 5.0);
    return Nanoseconds(static_cast<std::int64_t>(times * static_cast<double>(options_.up.count())));
  }
  static bool has_ended(pid_t process) { return !test::processor_time(process).ok(); }

  const RpcFailureOptions& options_;
  const std::string& pool_;
  FailureShared& shared_;
  Random random_;
  test::ChildProcess server_;
};

Result<RpcFailureRow> run_row(const RpcFailureOptions& options, bool relies_on_log,
                              unsigned write_percent) {
  PERDURE_TRY(directory, test::TemporaryDirectory::make(kMemoryDirectory));
  const std::string pool = directory.path() + "/calls.pool";
  PERDURE_TRY(memory, SharedMemory<FailureShared>::make());
  FailureShared& shared = *memory;
  FailureSupervisor supervisor(options, pool, shared);
  PERDURE_TRY_VOID(supervisor.start());
  PERDURE_TRY(found,
              run_in_child(
                  [&](const ChildPipes&) {
                    return FailureClient(options, relies_on_log, write_percent, shared).run();
                  },
                  [&](const ChildTask& task) { return supervisor.fail_and_come_back(task.pid); }));
  RpcFailureRow row;
  row.calls = found.at("calls").get<std::uint64_t>();
  row.seconds = found.at("seconds").get<double>();
  row.call_us = found.at("call_us").get<double>();
  row.resent = found.at("resent").get<std::uint64_t>();
  row.repeated = found.at("repeated").get<std::uint64_t>();
  row.failures = options.failures;
  const double rest = row.seconds - static_cast<double>(row.calls) * row.call_us / 1e6;
  row.failure_ms = rest * 1e3 / static_cast<double>(options.failures);
  return row;
}

report::Table found_table(const std::vector<RpcFailureRow>& rows,
                          const RpcFailureOptions& options) {
  report::Table table{{{"writes"},
                       {"client", false},
                       {"calls"},
                       {"failures"},
                       {"a call, us"},
                       {"a failure costs, ms"},
                       {"writes sent again"},
                       {"bytes sent again"},
                       {"writes executed again"}},
                      {}};
  for (const RpcFailureRow& row : rows) {
    const std::string client = row.relies_on_log ? "relies on the log" : "sends again";
    const std::string share = fmt::format("{} %", row.write_percent);
    if (!row.failure.empty()) {
      table.rows.push_back({share, client, "failed", "", "", "", "", "", ""});
      continue;
    }
    table.rows.push_back({share, client, report::grouped(row.calls), report::grouped(row.failures),
                          report::figure(row.call_us),
                          row.priced() ? report::figure(row.failure_ms) : "not quiet",
                          report::grouped(row.resent), report::grouped(row.resent_bytes(options)),
                          report::grouped(row.repeated)});
  }
  return table;
}

/// What follows for the paper's 10^9 calls: the time of clients that rely on the log over that of
/// clients that send again, and the same of what failures add.
report::Table derived_table(const std::vector<RpcFailureRow>& rows,
                            const RpcFailureOptions& options) {
  constexpr double kCalls = 1e9;
  report::Table table{{{"writes"}}, {}};
  for (const double available : kAvailabilities) {
    table.columns.push_back({fmt::format("{:.4g} %, of the time", available * 100)});
  }
  for (const RpcFailureRow& log : rows) {
    if (!log.relies_on_log || !log.priced()) continue;
    for (const RpcFailureRow& again : rows) {
      if (again.relies_on_log || again.write_percent != log.write_percent || !again.priced()) {
        continue;
      }
      std::vector<std::string> line{fmt::format("{} %", log.write_percent)};
      for (const double available : kAvailabilities) {
        line.push_back(fmt::format("{:.3f}", log.seconds_at(available, kCalls, options) /
                                                 again.seconds_at(available, kCalls, options)));
      }
      table.rows.push_back(std::move(line));
    }
  }
  return table;
}

constexpr const char* kDerived =
    "What follows for 1,000,000,000 calls, from a call's and a failure's cost above: the time of "
    "clients that rely on the log over that of clients that send again.";

}  // namespace

double RpcFailureRow::seconds_at(double availability, double count,
                                 const RpcFailureOptions& options) const {
  // How long it is up between failures, to be up that share of the time.
  const double down = to_seconds(options.down);
  const double up = down * availability / (1 - availability);
  const double quiet = count * call_us / 1e6;
  return quiet + quiet / up * failure_ms / 1e3;
}

std::uint64_t rpc_failures_max(const RpcFailureOptions& options) {
  // A call takes its work at least.
  const double call = to_seconds(std::max(options.work, Nanoseconds{1}));
  const double seconds = static_cast<double>(kWritesMax) * call / kWritesSharedMost;
  const double failure = to_seconds(std::max(options.up, Nanoseconds{1}));
  return static_cast<std::uint64_t>(
      std::max(0.0, (seconds - to_seconds(options.quiet) - failure) / failure));
}

Result<void> check_rpc_failures(const RpcFailureOptions& options) {
  const std::uint64_t most = rpc_failures_max(options);
  if (options.failures <= most) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} failures are too many: of a run {} writes are counted, which up to "
                           "{} failures leave room for",
                           report::grouped(options.failures), report::grouped(kWritesMax),
                           report::grouped(most))};
}

Result<std::vector<RpcFailureRow>> run_rpc_failures(const RpcFailureOptions& options,
                                                    const RpcFailureProgress& progress) {
  PERDURE_TRY_VOID(check_rpc_failures(options));
  std::vector<RpcFailureRow> rows;
  for (const unsigned writes : {5U, 50U, 95U}) {
    for (const bool relies_on_log : {false, true}) {
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      progress(fmt::format("{} % writes, {}", writes,
                           relies_on_log ? "relies on the log" : "sends again"));
      auto row = run_row(options, relies_on_log, writes);
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      RpcFailureRow found = row.ok() ? *row : RpcFailureRow{};
      if (!row.ok()) found.failure = row.error().message;
      found.relies_on_log = relies_on_log;
      found.write_percent = writes;
      rows.push_back(found);
    }
  }
  return rows;
}

std::string rpc_failures_text(const std::vector<RpcFailureRow>& rows,
                              const RpcFailureOptions& options) {
  std::string text = "Figure 12: Failures of the server [measured]\n\n";
  text += fmt::format("{}\n{} [{}]\n\n", found_table(rows, options).text(), kDerived,
                      to_string(report::Origin::Calculated));
  text += derived_table(rows, options).text();
  for (const RpcFailureRow& row : rows) {
    if (!row.failure.empty()) text += fmt::format("FAILED: {}\n", row.failure);
  }
  return text;
}

void add_rpc_failures(report::ReportPage& page, const std::vector<RpcFailureRow>& rows,
                      const RpcFailureOptions& options) {
  page.heading("Figure 12: Failures of the server");
  page.table(found_table(rows, options), report::Origin::Measured,
             "The server gets SIGKILL, and its process is started 300 ms later.");
  page.table(derived_table(rows, options), report::Origin::Calculated, kDerived);
}

nlohmann::json rpc_failures_json(const std::vector<RpcFailureRow>& rows,
                                 const RpcFailureOptions& options) {
  nlohmann::json all = nlohmann::json::array();
  for (const RpcFailureRow& row : rows) {
    all.push_back({{"label", to_string(report::Origin::Measured)},
                   {"client", row.relies_on_log ? "relies-on-log" : "sends-again"},
                   {"write_percent", row.write_percent},
                   {"calls", row.calls},
                   {"failures", row.failures},
                   {"seconds", row.seconds},
                   {"call_us", row.call_us},
                   {"failure_ms", row.failure_ms},
                   {"resent", row.resent},
                   {"resent_bytes", row.resent_bytes(options)},
                   {"repeated", row.repeated},
                   {"failure", row.failure}});
  }
  return all;
}

}  // namespace perdure::bench
