// Reading replicas back: whether each holds exactly the records that were appended.
#pragma once

#include <perdure/result.h>

#include <perdure/log.h>

#include "client/peer.h"
#include "core/method.h"
#include "demo/text.h"
#include "report/table.h"

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::demo {

/// What one replica returned.
struct ReplicaCheck {
  std::string peer;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  bool equal = false;
  bool beginning = false;  // nothing is wrong but that the last records are not there
  std::string difference;  // where it begins, if not equal
};

/// Reads the whole log of a peer over its data plane and compares it, byte for byte, with the
/// first `records` records of the text. Errors of reading are differences.
ReplicaCheck check_replica(client::Peer& peer, const std::string& pool, const RecordText& text,
                           std::uint64_t records, const Clock& clock);

bool all_equal(const std::vector<ReplicaCheck>& checks);
/// Whether the replicas hold what was promised. `closed`: the log's status when it had been closed;
/// a replica that had everything then has it now, as many as the quorum did, and what one holds
/// that lagged is the beginning of it.
bool as_promised(const std::vector<ReplicaCheck>& checks, const LogStatus& closed);
report::Table check_table(const std::vector<ReplicaCheck>& checks);

/// How records are made durable on one replica, and why so.
struct ReplicaMethod {
  std::string peer;
  std::string profile;
  std::string small_method;
  std::string small_reason;
  std::uint64_t small_bytes_max = 0;
  std::string large_method;
  ServerProfile server;
  Method method;  // the small one, for drawing
};

std::vector<ReplicaMethod> methods_of(const LogStatus& status);

}  // namespace perdure::demo
