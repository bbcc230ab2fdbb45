// What the replicas of a mirror say of themselves, read without disturbing whoever writes.
#pragma once

#include <perdure/result.h>

#include "client/peer.h"
#include "client/remote_bytes.h"
#include "core/clock.h"
#include "mirror/mirror_format.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::mirror {

enum class ReplicaVerdict {
  Newest,       // complete, of the newest generation: it has everything
  Behind,       // complete, of an older one: it has missed something
  Incomplete,   // it was being brought up to date
  Blank,        // its pool holds nothing
  Damaged,      // what it says of itself can not be trusted, or it is of another mirror
  Unreachable,  // it was not heard
};

std::string_view to_string(ReplicaVerdict verdict);

struct SurveyedReplica {
  std::string peer;
  std::string pool_uuid;
  std::string writer_name;  // of who holds a session for writing now; empty: nobody
  std::optional<Error> error;
  ReplicaStart start;
  ReplicaVerdict verdict = ReplicaVerdict::Unreachable;
  std::unique_ptr<client::RemoteBytes> bytes;  // nothing if it was not heard
};

struct MirrorSurvey {
  std::optional<MirrorHeader> header;  // nothing: no replica that was heard has one
  Generation newest;
  std::vector<SurveyedReplica> replicas;

  std::size_t count(ReplicaVerdict verdict) const;
  /// Whether enough were heard to know which is the newest, and one that has everything is there.
  bool can_be_restored() const;
};

/// Errors: none as a whole; each replica has its own.
MirrorSurvey survey(std::vector<std::unique_ptr<client::Peer>>& peers, const std::string& pool,
                    Nanoseconds timeout, const Clock& clock);

struct Difference {
  std::size_t replica = 0;
  std::uint64_t pages = 0;  // that differ from those of the first newest replica
  std::uint64_t first_at = 0;
};

/// Compares the replicas that should have everything, page by page. `progress` is told how many
/// bytes were compared. Errors: those of RemoteBytes::read; InvalidArgument: there is none.
Result<std::vector<Difference>> compare_newest(MirrorSurvey& survey,
                                               const std::function<void(std::uint64_t)>& progress);

}  // namespace perdure::mirror
