// Many clients of one server: see rpc_crowd.h.
#include "bench/rpc_crowd.h"

#include "bench/child.h"
#include "bench/limits_rpc.h"
#include "control/service_types.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/text_file.h"
#include "core/try.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <perdure/messages.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>
#include <vector>

namespace perdure::bench {
namespace {

constexpr std::uint64_t kWarmUpCalls = 4;  // of each client
constexpr std::chrono::milliseconds kCrowdWithin = std::chrono::minutes(3);

/// Resident memory of a process without that of the file `but`. Errors: NotFound.
Result<std::uint64_t> resident_beside(pid_t process, const std::string& but) {
  PERDURE_TRY(all, test::resident_bytes(process));
  std::istringstream lines(read_text(fmt::format("/proc/{}/smaps", process)));
  std::uint64_t of_file = 0;
  bool in_file = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_field = line.find(':') < line.find(' ');
    if (!is_field) in_file = line.ends_with(but);
    if (in_file && line.starts_with("Rss:")) {
      of_file += 1024 * std::strtoull(line.c_str() + 4, nullptr, 10);
    }
  }
  return all - std::min(all, of_file);
}

/// TCP connections that this host has begun. 0 where it does not tell.
std::uint64_t connects_begun() {
  std::istringstream lines(read_text("/proc/net/snmp"));
  std::string names;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("Tcp:")) continue;
    if (names.empty()) {
      names = line;
      continue;
    }
    std::istringstream name(names);
    std::istringstream value(line);
    std::string word;
    std::string number;
    while (name >> word && value >> number) {
      if (word == "ActiveOpens") return std::strtoull(number.c_str(), nullptr, 10);
    }
  }
  return 0;
}

/// The most that was begun in one second.
class ConnectRate {
 public:
  void look() {
    const Nanoseconds now = Clock::monotonic().now();
    if (now - since_ < std::chrono::seconds(1)) return;
    take(now);
  }
  std::uint64_t most() {
    take(Clock::monotonic().now());
    return most_;
  }

 private:
  void take(Nanoseconds now) {
    const std::uint64_t begun = connects_begun();
    most_ = std::max(most_, by_the_second(begun - begun_, now - since_));
    begun_ = begun;
    since_ = now;
  }
  Nanoseconds since_ = Clock::monotonic().now();
  std::uint64_t begun_ = connects_begun();
  std::uint64_t most_ = 0;
};

bool has_word(int pipe) {
  pollfd descriptor{pipe, POLLIN, 0};
  return ::poll(&descriptor, 1, 0) == 1;
}

class Crowd {
 public:
  Result<void> open(const CrowdOptions& options, const std::string& server) {
    PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
    for (std::size_t index = 0; index < options.clients; ++index) {
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      RpcClientOptions client;
      client.server = server;
      client.name = fmt::format("client-{}", index);
      client.transport = transport;
      client.measure_costs = false;
      PERDURE_TRY(opened, RpcClient::open(client));
      clients_.push_back(std::move(opened));
    }
    calls_.resize(clients_.size());
    applied_.resize(clients_.size());
    return {};
  }

  /// Each client once, without waiting: whose call is applied begins the next one.
  Result<void> turn() {
    for (std::size_t index = 0; index < clients_.size(); ++index) {
      PERDURE_TRY(free, is_free(index));
      if (!free) continue;
      std::array<std::byte, sizeof(std::uint64_t)> payload{};
      store(payload.data(), std::uint64_t{index});
      PERDURE_TRY(call, clients_[index].call(kCrowdCall, payload));
      calls_[index] = call;
    }
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    if (!deadline_.passed()) return {};
    return Error{ErrorCode::TimedOut,
                 fmt::format("of {} clients the slowest has {} calls applied after {} s",
                             clients_.size(), fewest(), kCrowdWithin.count() / 1000)};
  }

  /// Until each client has so many more calls applied than now.
  Result<void> until_each(std::uint64_t more, const std::function<void()>& look = {}) {
    const std::vector<std::uint64_t> before = applied_;
    const auto behind = [&](std::size_t index) { return applied_[index] < before[index] + more; };
    for (std::size_t index = 0; index < clients_.size();) {
      if (!behind(index)) {
        ++index;
      } else {
        PERDURE_TRY_VOID(turn());
        if (look) look();
      }
    }
    return {};
  }

  /// Nothing is in flight any more; then the handlers' counts.
  Result<void> verify() {
    for (std::size_t index = 0; index < clients_.size(); ++index) {
      PERDURE_TRY(reply, clients_[index].reply(calls_[index], kCrowdWithin));
      if (reply.refused) return Error{ErrorCode::Corrupt, "a call of the crowd was refused"};
    }
    PERDURE_TRY(counts, clients_.front().query(kCrowdCounts, {}, true, kCrowdWithin));
    for (std::size_t index = 0; index < clients_.size(); ++index) {
      const std::uint64_t begun = calls_[index].sequence;
      const std::uint64_t at = index * sizeof begun;
      const std::uint64_t executed =
          at < counts.size() ? load<std::uint64_t>(counts.data() + at) : 0;
      if (executed == begun) continue;
      return Error{ErrorCode::Corrupt, fmt::format("client-{} made {} calls, and {} were executed",
                                                   index, begun, executed)};
    }
    return {};
  }

  const std::vector<std::uint64_t>& applied() const { return applied_; }
  std::uint64_t all() const {
    return std::accumulate(applied_.begin(), applied_.end(), std::uint64_t{0});
  }
  std::uint64_t fewest() const { return *std::min_element(applied_.begin(), applied_.end()); }
  std::uint64_t resent() const {
    std::uint64_t sum = 0;
    for (const RpcClient& client : clients_) sum += client.status().resent;
    return sum;
  }

 private:
  Result<bool> is_free(std::size_t index) {
    if (calls_[index].sequence == 0 || applied_[index] == calls_[index].sequence) return true;
    const auto waited = clients_[index].wait(calls_[index], RpcLevel::Applied, {});
    if (!waited.ok() && waited.code() != ErrorCode::TimedOut) return waited.error();
    if (waited.ok()) applied_[index] = calls_[index].sequence;
    return waited.ok();
  }

  std::vector<RpcClient> clients_;
  std::vector<RpcHandle> calls_;        // the last of each
  std::vector<std::uint64_t> applied_;  // of each
  const Deadline deadline_ = Deadline::after(kCrowdWithin);
};

Result<void> measure(const CrowdOptions& options, Crowd& crowd, pid_t server,
                     CrowdFindings& findings) {
  const std::vector<std::uint64_t> before = crowd.applied();
  const std::uint64_t calls_before = crowd.all();
  PERDURE_TRY(processor_before, test::processor_time(server));
  const Nanoseconds begun = Clock::monotonic().now();
  while (crowd.all() < calls_before + options.calls) PERDURE_TRY_VOID(crowd.turn());
  const double took = to_seconds(Clock::monotonic().now() - begun);
  PERDURE_TRY(processor, test::processor_time(server));
  PERDURE_TRY(bytes, resident_beside(server, "/calls.pool"));
  const auto calls = static_cast<double>(crowd.all() - calls_before);
  findings.processor_us = static_cast<double>((processor - processor_before).count()) / 1e3 / calls;
  findings.calls_per_second = calls / took;
  findings.server_bytes = bytes;
  findings.calls_fewest = UINT64_MAX;
  for (std::size_t index = 0; index < before.size(); ++index) {
    const std::uint64_t each = crowd.applied()[index] - before[index];
    findings.calls_fewest = std::min(findings.calls_fewest, each);
    findings.calls_most = std::max(findings.calls_most, each);
  }
  return {};
}

/// Has the server killed, and goes on calling until each client was served by the next one.
Result<void> lose_server(Crowd& crowd, const ChildPipes& pipes, CrowdFindings& findings) {
  ConnectRate rate;
  Nanoseconds begun = Clock::monotonic().now();
  PERDURE_TRY_VOID(tell(pipes.to_parent));
  while (!has_word(pipes.from_parent)) {
    PERDURE_TRY_VOID(crowd.turn());
    rate.look();
  }
  PERDURE_TRY_VOID(await_word(pipes.from_parent));
  findings.away_s = to_seconds(Clock::monotonic().now() - begun);
  begun = Clock::monotonic().now();
  // The first of them may have been applied by the server that is gone.
  for (std::uint64_t more = 0; more < 2; ++more) {
    PERDURE_TRY_VOID(crowd.until_each(1, [&rate] { rate.look(); }));
  }
  findings.back_s = to_seconds(Clock::monotonic().now() - begun);
  findings.connects_most = rate.most();
  findings.resent = crowd.resent();
  return {};
}

nlohmann::json to_json(const CrowdFindings& found) {
  return {found.processor_us, found.calls_per_second, found.server_bytes,
          found.calls_fewest, found.calls_most,       found.opened_s,
          found.away_s,       found.back_s,           found.connects_most,
          found.resent};
}

CrowdFindings from_json(const nlohmann::json& json) {
  return {json[0], json[1], json[2], json[3], json[4], json[5], json[6], json[7], json[8], json[9]};
}

}  // namespace

std::uint64_t by_the_second(std::uint64_t count, Nanoseconds within) {
  const double seconds = std::max(to_seconds(within), 1.0);
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(count) / seconds));
}

Result<CrowdFindings> run_crowd(const CrowdOptions& options) {
  RpcServerPlan plan{options.directory, options.clients};
  PERDURE_TRY(started, RpcServerUnderTest::start(plan));
  std::optional<RpcServerUnderTest> server(std::move(started));
  const pid_t pid = server->pid();
  plan.listen = server->address();
  const ChildWork generate = [&](const ChildPipes& pipes) -> Result<nlohmann::json> {
    CrowdFindings findings;
    Crowd crowd;
    const Nanoseconds begun = Clock::monotonic().now();
    PERDURE_TRY_VOID(crowd.open(options, plan.listen));
    findings.opened_s = to_seconds(Clock::monotonic().now() - begun);
    PERDURE_TRY_VOID(crowd.until_each(kWarmUpCalls));
    PERDURE_TRY_VOID(measure(options, crowd, pid, findings));
    // The server goes, here or once this process has answered: each client would warn of it.
    set_message_callback([](Severity, const std::string&) {});
    if (options.lose_server) PERDURE_TRY_VOID(lose_server(crowd, pipes, findings));
    PERDURE_TRY_VOID(crowd.verify());
    return to_json(findings);
  };
  const ParentWork replace = [&](const ChildTask& task) -> Result<void> {
    if (!options.lose_server) return {};
    PERDURE_TRY_VOID(await_word(task.from_child));
    server.reset();
    PERDURE_TRY(next, RpcServerUnderTest::start(plan));
    server.emplace(std::move(next));
    return tell(task.to_child);
  };
  PERDURE_TRY(found, run_in_child(generate, replace));
  return from_json(found);
}

}  // namespace perdure::bench
