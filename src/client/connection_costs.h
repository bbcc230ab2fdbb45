// What a connection to a responder costs, timed on the connection itself: the numbers by which a
// requester chooses among methods that are all right. Nothing of a pool changes by it.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "client/peer.h"
#include "core/clock.h"
#include "persist/requester.h"
#include "plan/cost.h"

#include <optional>
#include <string>

namespace perdure::client {

struct MeasureOptions {
  const Clock* clock = &Clock::monotonic();
  /// The requester has a probe line: time WRITEs too. Else what they cost is inferred.
  bool writes = false;
  /// For the answer to one probe.
  Nanoseconds answer_within = std::chrono::seconds(5);
  /// Ends everything, if given.
  std::optional<Deadline> until;
};

/// Times messages, READs (or FLUSHes) and WRITEs; copying, flushing and syncing are as the
/// responder says, or as usual where it does not. Of each the best time counts, so that a model is
/// that of a quiet machine; probes take turns, so that all meet the same noise.
///
/// Requires    nothing in flight; Requester::Options::probes.
/// Errors      TimedOut: one probe is still in flight and resolves later like any update. Those of
///             Requester::poll.
/// Cost        4 to 16 turns of 4 or 5 round trips, no new turn after 3 ms (of the first 4: after
///             30 ms), and three waits of 0.1 ms to find the responder asleep.
Result<plan::CostModel> measure_costs(persist::Requester& requester, const Session& session,
                                      const MeasureOptions& options);

/// A responder as a writer of the pool would meet it.
struct MeasuredPool {
  ServerProfile profile;
  std::size_t message_bytes_max = 0;
  plan::CostModel costs;
};

/// Opens a session that may only read, measures, and closes it: writers are not disturbed.
/// Errors: those of Peer::open_session and of measure_costs.
Result<MeasuredPool> measure_pool(Peer& peer, const std::string& pool, Nanoseconds timeout,
                                  const Clock& clock);

}  // namespace perdure::client
