// The C interface of a log's replicas: how they are, how they are repaired and changed.
#include <perdure/log.h>
#include <perdure/perdure.h>

#include <vector>

#include "capi/failure.h"
#include "capi/handles.h"

using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::give_all;
using perdure::capi::give_text;
using perdure::capi::guarded;

namespace {

PERDURE_CAPI_ENDS_WITH(perdure_repair_report, error);
PERDURE_CAPI_ENDS_WITH(perdure_replica_status, posts);

perdure_repair_report report_of(const perdure::RepairReport& report) {
  perdure_repair_report told{};
  told.copied_bytes = report.copied_bytes;
  told.repaired = report.repaired;
  give_text(report.peer, told.peer);
  give_text(report.found, told.found);
  give_text(report.error, told.error);
  return told;
}

perdure_replica_status replica_of_log(const perdure::ReplicaStatus& replica) {
  perdure_replica_status told{};
  told.durable_below = replica.durable_below.value;
  told.small_bytes_max = replica.small_bytes_max;
  told.replans = replica.replans;
  told.requests = replica.requests;
  told.messages = replica.messages;
  told.posts = replica.posts;
  told.up = replica.up;
  told.costs_measured = replica.costs_measured;
  give_text(replica.peer, told.peer);
  give_text(replica.pool_uuid, told.pool_uuid);
  give_text(replica.small_method, told.small_method);
  give_text(replica.large_method, told.large_method);
  if (replica.up) give_text(perdure::describe(replica.profile), told.profile);
  give_text(replica.down_reason, told.down_reason);
  return told;
}

bool has_room(const perdure_repair_report* reports, size_t count, const size_t* there) {
  return there != nullptr && (reports != nullptr || count == 0);
}

}  // namespace

perdure_code perdure_log_repair_within(perdure_log* log, uint32_t timeout_ms,
                                       perdure_repair_report* reports, size_t count,
                                       size_t* there) {
  if (log == nullptr || !has_room(reports, count, there)) {
    return fail("log, reports and there must not be NULL");
  }
  if (!perdure::capi::have_sizes(reports, count)) return perdure::capi::fail_of_sizes();
  return guarded(log, [&] {
    const auto repaired = log->log.repair(std::chrono::milliseconds(timeout_ms));
    if (!repaired.ok()) return fail(repaired.error());
    return give_all(*repaired, reports, count, there, report_of);
  });
}

perdure_code perdure_log_take_repairs(perdure_log* log, perdure_repair_report* reports,
                                      size_t count, size_t* there) {
  if (log == nullptr || !has_room(reports, count, there)) {
    return fail("log, reports and there must not be NULL");
  }
  if (!perdure::capi::have_sizes(reports, count)) return perdure::capi::fail_of_sizes();
  return guarded(
      log, [&] { return give_all(log->log.take_repairs(), reports, count, there, report_of); });
}

perdure_code perdure_log_get_replicas(const perdure_log* log, perdure_replica_status* replicas,
                                      size_t count, size_t* there) {
  if (log == nullptr || there == nullptr || (replicas == nullptr && count != 0)) {
    return fail("log, replicas and there must not be NULL");
  }
  return guarded(log, [&] {
    return give_all(log->log.status().replicas, replicas, count, there, replica_of_log);
  });
}

perdure_code perdure_log_add_replica(perdure_log* log, const char* peer, size_t quorum) {
  if (log == nullptr || peer == nullptr) return fail("log and peer must not be NULL");
  return guarded(log, [&] { return code_of(log->log.add_replica(peer, quorum)); });
}

perdure_code perdure_log_remove_replica(perdure_log* log, const char* which, size_t quorum) {
  if (log == nullptr || which == nullptr) return fail("log and which must not be NULL");
  return guarded(log, [&] { return code_of(log->log.remove_replica(which, quorum)); });
}

perdure_code perdure_log_replace_replica(perdure_log* log, const char* which, const char* peer) {
  if (log == nullptr || which == nullptr || peer == nullptr) {
    return fail("log, which and peer must not be NULL");
  }
  return guarded(log, [&] { return code_of(log->log.replace_replica(which, peer)); });
}

perdure_code perdure_log_change_quorum(perdure_log* log, size_t quorum) {
  if (log == nullptr) return fail("log must not be NULL");
  return guarded(log, [&] { return code_of(log->log.change_quorum(quorum)); });
}
