// What a region answers: READs, and atomics of a word.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/try.h"
#include "region/replicated_region.h"

namespace perdure::region {

/// Of several replicas each would answer with a value of its own. There is one writer, so nobody
/// else changes the word between this READ of it, behind all that was written, and the new one.
Result<std::uint64_t> ReplicatedRegion::read_and_write(const persist::Atomic& what) {
  if (auto refused = refuses_level(Level::Committed)) return *refused;
  // A message has the responder's processor store it; what an RNIC stores of a WRITE may be torn.
  if (options_.primary.value_or(Primary::Send) != Primary::Send) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("an atomic of several peers writes the word, and primary = {} may tear "
                    "it: open {} without primary, or with send",
                    to_string(*options_.primary), name())};
  }
  if (const auto before = flush(Level::Committed, options_.peer_timeout); !before.ok()) {
    if (fenced_) return *fenced_;
    return Error{before.code() == ErrorCode::TimedOut ? ErrorCode::TimedOut : ErrorCode::QuorumLost,
                 fmt::format("the atomic was not begun: {}", before.error().message)};
  }
  PERDURE_TRY(best, best_to_read());
  if (!replicas_[best].whole) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("the replicas of {} may differ, and so may a word: compare them, and "
                             "note_equal(); with a quorum of half of them they always may",
                             name())};
  }
  std::uint64_t word = 0;
  PERDURE_TRY_VOID(read(what.at, std::as_writable_bytes(std::span(&word, 1)), best));
  const std::uint64_t was = word;
  const bool differs =
      what.operation == persist::AtomicOperation::CompareSwap && was != what.expected;
  // A word that stays is written, too: whoever has been fenced meanwhile learns it, and does not
  // tell an older value.
  if (what.operation == persist::AtomicOperation::FetchAdd) {
    word += what.operand;
  } else if (!differs) {
    word = what.operand;
  }
  const RangeWrite range{what.at, std::as_bytes(std::span(&word, 1))};
  const RangeEpoch epoch(&range, 1);
  PERDURE_TRY(ticket, write({&epoch, 1}));
  if (const auto done = wait(ticket, Level::Committed, options_.peer_timeout); !done.ok()) {
    return Error{ErrorCode::OutcomeUnknown,
                 fmt::format("the atomic was done once or not at all: {}", done.error().message)};
  }
  return was;
}

Result<std::uint64_t> ReplicatedRegion::atomic(persist::Atomic what) {
  PERDURE_TRY_VOID(persist::check_atomic(what, bytes_));
  if (replicas_.size() != 1) return read_and_write(what);
  what.at += kDataAt;
  Replica& replica = replicas_.front();
  if (replica.session.up() &&
      replica.session.connection().pool.profile.domain == PersistenceDomain::None) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("an atomic survives a power failure, and the memory of {} does not",
                             replica.session.peer().name())};
  }
  client::DurableSession& session = replica.session;
  // What is in flight is sent again when the connection is lost: it would be stored over an atomic
  // that was done behind it.
  const auto waits = [&] {
    return !has_turn() || replica.catching_up || replica.sent != begun_ ||
           (comes_back(replica) && in_flight_at(replica));
  };
  const Nanoseconds since = clock_.now();
  while (session.up() && waits()) {
    progress();
    bring_back(Deadline(clock_, options_.peer_timeout));
    if (fenced_) return *fenced_;
    rest(since, kRestSlice);
  }
  auto number = session.atomic(what);
  if (!number.ok()) {
    if (!session.up() && find_newer_writer()) return *fenced_;
    return number.error();
  }
  if (auto done = await(replica, *number); !done) {
    return Error{ErrorCode::OutcomeUnknown,
                 fmt::format("the atomic was done once or not at all: {}", done.error().message)};
  }
  return session.value_before(*number);
}

/// The furthest of those that are whole, else of all, once it has what was reported as committed.
Result<std::size_t> ReplicatedRegion::best_to_read() {
  const auto lacks_some = [this](const Replica& each) {
    const bool copied = copy_ && &replicas_[copy_->target] == &each;
    return each.missed && (!each.missed->empty() || copied || each.landed < each.behind);
  };
  const auto has = [](const Replica& each) { return each.missed ? each.landed : each.resolved; };
  const auto worse = [&](const Replica& one, const Replica& other) {
    const auto rank = [&](const Replica& each) {
      return std::tuple(each.session.up(), !lacks_some(each), each.whole, has(each));
    };
    return rank(one) < rank(other);
  };
  const std::uint64_t committed = reached_by(quorum_);
  const Nanoseconds since = clock_.now();
  for (;;) {
    progress();
    const auto found = std::max_element(replicas_.begin(), replicas_.end(), worse);
    if (!found->session.up()) return Error{ErrorCode::Disconnected, lost().message};
    if (lacks_some(*found)) {
      return Error{ErrorCode::Disconnected,
                   fmt::format("{} alone is up, and is just coming back: it may lack what was "
                               "reported; wait, or name it",
                               found->session.peer().name())};
    }
    if (has(*found) >= committed) return static_cast<std::size_t>(found - replicas_.begin());
    rest(since, kRestSlice);
  }
}

Result<void> ReplicatedRegion::read(std::uint64_t at, std::span<std::byte> into,
                                    std::size_t which) {
  if (into.size() > bytes_ || at > bytes_ - into.size()) {
    return Error{ErrorCode::OutOfRange,
                 fmt::format("bytes {}+{} lie outside the region's {}", at, into.size(), bytes_)};
  }
  if (which == Region::kAny) {
    PERDURE_TRY(best, best_to_read());
    which = best;
  }
  if (which >= replicas_.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("replica {} of {}", which, replicas_.size())};
  }
  Replica& replica = replicas_[which];
  const Nanoseconds since = clock_.now();
  while (!into.empty()) {
    while (replica.session.in_flight() == client::kUpdatesMax && replica.session.up()) {
      progress();
      rest(since, kRestSlice);
    }
    const std::size_t bytes = std::min(into.size(), kLandingBytes);
    auto number =
        replica.session.read(kDataAt + at, {landing_.get(), bytes, replica.landing.get()});
    if (!number.ok()) return Error{ErrorCode::Disconnected, number.error().message};
    PERDURE_TRY_VOID(await(replica, *number));
    std::memcpy(into.data(), landing_.get(), bytes);
    at += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

}  // namespace perdure::region
