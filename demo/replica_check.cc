// Comparing replicas with the text; and the methods by which they were written.
#include "demo/replica_check.h"

#include "client/remote_bytes.h"
#include "core/try.h"
#include "log/log_scan.h"
#include "plan/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace perdure::demo {
namespace {

constexpr Nanoseconds kTimeout = std::chrono::seconds(20);

Result<void> compare(ReplicaCheck& check, client::Peer& peer, const std::string& pool,
                     const RecordText& text, std::uint64_t records, const Clock& clock) {
  PERDURE_TRY(bytes, client::RemoteBytes::open(peer, pool, kTimeout, clock));
  const auto visit = [&](const log::RecordView& record) {
    if (record.header.type != log::RecordType::Data) return;
    const auto wanted = text.record(check.records);
    const bool same = check.records < records && wanted.size() == record.payload.size() &&
                      std::memcmp(wanted.data(), record.payload.data(), wanted.size()) == 0;
    if (!same && check.difference.empty()) {
      check.difference = fmt::format("record {} is not what was appended", check.records);
    }
    ++check.records;
    check.bytes += record.payload.size();
  };
  PERDURE_TRY(report, log::scan_log(*bytes, visit));
  if (!check.difference.empty()) return {};
  check.beginning =
      check.records <= records && check.bytes == text.bytes(check.records) && !report.damaged();
  if (check.records != records) {
    check.difference = fmt::format("{} records of {}; the log ends as '{}'", check.records, records,
                                   to_string(report.end));
  } else if (check.bytes != text.bytes(records)) {
    check.difference = fmt::format("{} bytes of {}", check.bytes, text.bytes(records));
  } else if (report.damaged()) {
    check.difference = "the tail word promises more than there is";
  }
  check.equal = check.difference.empty();
  return {};
}

/// The known method of that name for the responder, whatever its shape.
std::optional<plan::Known> find_method(const ServerProfile& server, const std::string& name) {
  for (const UpdateShape& shape : {singleton(), compound()}) {
    plan::Request request{shape, Level::Durable, true};
    for (plan::Known& known : plan::known_methods(server, request)) {
      if (known.method.name == name) return std::move(known);
    }
  }
  return std::nullopt;
}

}  // namespace

ReplicaCheck check_replica(client::Peer& peer, const std::string& pool, const RecordText& text,
                           std::uint64_t records, const Clock& clock) {
  ReplicaCheck check;
  check.peer = peer.name();
  const auto compared = compare(check, peer, pool, text, records, clock);
  if (!compared.ok()) {
    check.equal = false;
    check.difference = compared.error().message;
  }
  return check;
}

bool all_equal(const std::vector<ReplicaCheck>& checks) {
  return !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const auto& check) { return check.equal; });
}

bool as_promised(const std::vector<ReplicaCheck>& checks, const LogStatus& closed) {
  std::size_t equal = 0;
  for (const ReplicaStatus& replica : closed.replicas) {
    const auto found = std::find_if(checks.begin(), checks.end(), [&](const ReplicaCheck& check) {
      return check.peer == replica.peer;
    });
    if (found == checks.end()) return false;
    const bool lagged = replica.durable_below < closed.tail;
    if (!found->equal && !(lagged && found->beginning)) return false;
    equal += found->equal ? 1 : 0;
  }
  return closed.quorum != 0 && equal >= closed.quorum;
}

report::Table check_table(const std::vector<ReplicaCheck>& checks) {
  report::Table table{
      {{"replica", false}, {"records"}, {"bytes"}, {"compared with the text", false}}, {}};
  for (const ReplicaCheck& check : checks) {
    table.rows.push_back({check.peer, report::grouped(check.records), report::grouped(check.bytes),
                          check.equal ? "identical, byte for byte" : check.difference});
  }
  return table;
}

std::vector<ReplicaMethod> methods_of(const LogStatus& status) {
  std::vector<ReplicaMethod> methods;
  for (const ReplicaStatus& replica : status.replicas) {
    if (!replica.up) continue;
    ReplicaMethod method{replica.peer,
                         describe(replica.profile),
                         replica.small_method,
                         "",
                         replica.small_bytes_max,
                         replica.large_method,
                         replica.profile,
                         {}};
    if (auto known = find_method(replica.profile, replica.small_method)) {
      method.small_reason = std::move(known->reason);
      method.method = std::move(known->method);
    }
    methods.push_back(std::move(method));
  }
  return methods;
}

}  // namespace perdure::demo
