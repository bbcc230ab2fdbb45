// What a writer remembers of a replica that it is bringing to equal, from one call to the next:
// each of them may have too little time for all of it. In memory only: another writer begins anew.
#pragma once

#include "core/clock.h"
#include "log/log_scan.h"
#include "log/log_state.h"
#include "pmem/pool_format.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace perdure::log {

struct BroughtSoFar {
  /// A source, which has everything from the head to here.
  struct Checked {
    pmem::Uuid source;
    Boundary to;
  };
  /// The writer's records from `from` to `to` were written to the replica, and it has answered for
  /// them: they are durable there. It is the replica that was written to as long as its state is
  /// the one that was written last, and the last of these records is still there.
  struct Copied {
    LogState state;
    std::uint64_t generation = 0;  // of that state
    Lsn from;
    Boundary before_last;  // of these records; the same as `to` where nothing is to be looked at
    Boundary to;
    std::uint64_t bytes = 0;
    /// Of what follows `to`, so many bytes, too: a long record may take more than one call.
    std::uint64_t behind = 0;
  };
  /// A record that could not be read where it is durable: a READ may return it a moment later. If
  /// it does not, it is damaged, however short the calls are that find it missing.
  struct Awaited {
    pmem::Uuid pool;  // of the source, or of the replica itself
    Lsn at;
    Nanoseconds since{0};
  };

  std::optional<ScanSoFar> scan;          // what it has itself
  std::optional<Checked> checked;         // before what it has is replaced
  std::optional<Copied> copied;           // what was missing
  std::optional<Boundary> verified;       // up to here what was copied has been read back
  std::optional<Awaited> awaited;         // the last one
  std::optional<Nanoseconds> last_there;  // when it was last seen by a call that failed
  std::array<Lsn, 4> furthest{};          // that reached() has ever been

  /// How far each of these has come.
  std::array<Lsn, 4> reached() const {
    return {scan ? std::max(scan->report.tail, scan->behind.looked) : Lsn{},
            checked ? checked->to.lsn : Lsn{},
            copied ? Lsn{copied->to.lsn.value + copied->behind} : Lsn{},
            verified ? verified->lsn : Lsn{}};
  }
  /// Whether any of these has come further than ever before: not, when copying begins again at a
  /// place that does not read back.
  bool note_further() {
    const auto now = reached();
    bool further = false;
    for (std::size_t each = 0; each < now.size(); ++each) {
      further = further || now[each] > furthest[each];
      furthest[each] = std::max(furthest[each], now[each]);
    }
    return further;
  }
  /// What was read too long ago is read again: the medium may have lost some of it meanwhile. What
  /// was copied stays: all of it is read back before the replica counts.
  void forget_what_was_read() {
    scan.reset();
    checked.reset();
    verified.reset();
  }
};

}  // namespace perdure::log
