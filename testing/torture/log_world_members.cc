// Who is a replica of the log, as its operator knows it, and how much of them may be lost: see
// log_world.h.
#include <algorithm>

#include "core/byte_source.h"
#include "core/try.h"
#include "log/log_scan.h"
#include "pmem/pool_format.h"
#include "testing/torture/log_world.h"

namespace perdure::test {
namespace {

/// How many replicas may be destroyed at a time: every committed record is still on a whole one,
/// and enough whole ones are left to know it.
std::size_t bearable(std::size_t replicas, std::size_t quorum) {
  const std::size_t needed = std::max(quorum, replicas - quorum + 1);
  return std::min(quorum - 1, replicas - needed);
}

}  // namespace

bool LogWorld::has(const Members& members, const pmem::Uuid& pool) {
  return std::ranges::find(members.pools, pool) != members.pools.end();
}

std::optional<std::size_t> LogWorld::server_of(const pmem::Uuid& pool) const {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (pool_of(index) == pool) return index;
  }
  return std::nullopt;
}

std::optional<std::size_t> LogWorld::server_named(const std::string& name) const {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (name_of(index) == name) return index;
  }
  return std::nullopt;
}

/// Whether the bytes of a replica say that they are not all there: its content was being replaced.
bool LogWorld::is_marked(std::size_t replica) const {
  LocalBytes bytes(data_of(replica));
  const auto start = log::read_start(bytes);
  return !start.ok() || !start->anchor || start->state().marks.incomplete ||
         start->state().marks.removed;
}

/// Whether a replica with this pool can not vote any more.
bool LogWorld::is_lost(const pmem::Uuid& pool) const {
  const auto server = server_of(pool);
  if (!server) return true;
  return replicas_[*server].bad || (opened_ > 0 && is_marked(*server));
}

std::size_t LogWorld::lost_of(const Members& members) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      members.pools, [this](const pmem::Uuid& pool) { return is_lost(pool); }));
}

bool LogWorld::bears(const Members& members) const {
  return lost_of(members) <= bearable(members.pools.size(), members.quorum);
}

/// Whether it looks damaged: of records in flight a later one may be there, which says that one of
/// those before it was committed, and that one not (docs/log-protocol.md, what is not promised).
bool LogWorld::looks_damaged(std::size_t replica) const {
  LocalBytes bytes(data_of(replica));
  const auto found = log::scan_log(bytes, nullptr);
  return found.ok() && found->damaged();
}

/// Whether with those that look damaged and are not, too few are left to be sure of anything.
bool LogWorld::too_many_look_damaged() const {
  return std::ranges::any_of(known_, [this](const Members& members) {
    const auto alike = static_cast<std::size_t>(
        std::ranges::count_if(members.pools, [this](const pmem::Uuid& pool) {
          return !is_lost(pool) && looks_damaged(*server_of(pool));
        }));
    return alike != 0 && lost_of(members) + alike > bearable(members.pools.size(), members.quorum);
  });
}

/// Whether what a machine holds may be destroyed.
bool LogWorld::may_spoil(std::size_t replica) const {
  const pmem::Uuid& pool = pool_of(replica);
  if (beyond_ || is_lost(pool)) return true;
  return std::ranges::all_of(known_, [&](const Members& members) {
    const std::size_t more = has(members, pool) ? 1 : 0;
    return lost_of(members) + more <= bearable(members.pools.size(), members.quorum);
  });
}

/// Replicas that were being replaced when their writer died count as lost until they are brought to
/// equal (docs/log-protocol.md, what is not promised). With others that makes them too many.
void LogWorld::note_beyond() {
  if (beyond_ || std::ranges::all_of(known_, [this](const Members& each) { return bears(each); })) {
    return;
  }
  tell("more replicas are lost than the log bears: {} of {}, quorum {}", lost_of(known_.front()),
       known_.front().pools.size(), known_.front().quorum);
  for (const pmem::Uuid& pool : known_.front().pools) {
    const auto server = server_of(pool);
    if (!server) {
      tell("pool {} is gone", to_string(pool));
    } else if (is_lost(pool)) {
      tell("replica{} is {}", *server, replicas_[*server].bad ? "damaged" : "marked");
    }
  }
  beyond_ = beyond_later_ = true;
  judge_.bear_loss();
}

/// Whether the operator may take its pool for a replica.
bool LogWorld::is_named(std::size_t replica) const {
  return std::ranges::any_of(
      known_, [&](const Members& members) { return has(members, pool_of(replica)); });
}

/// Machines whose pool is no replica.
std::vector<std::size_t> LogWorld::strangers() const {
  std::vector<std::size_t> found;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!is_named(index)) found.push_back(index);
  }
  return found;
}

LogWorld::Members LogWorld::members_of(const Program& program) const {
  const log::Configuration& configuration = program.log->configuration();
  Members members;
  for (const log::Member& each : configuration.members) members.pools.push_back(each.pool);
  members.quorum = configuration.quorum;
  return members;
}

/// The same members, of whom there will be `count`, with the quorum that follows.
LogWorld::Members LogWorld::changed(const Members& before, std::size_t count) const {
  Members next = before;
  const bool majority = before.quorum == before.pools.size() / 2 + 1;
  next.quorum = majority ? count / 2 + 1 : std::min(before.quorum, count);
  return next;
}

/// An operator changes what is known for sure, and to what survives as much as is lost already.
bool LogWorld::may_change(const Members& next, Random& choices) {
  if (!ensure_open(choices) || judge_.breach()) return false;
  return beyond_ || bears(next);
}

void LogWorld::note_change(const Result<void>& outcome, const Members& next,
                           std::string_view what) {
  tell_outcome(what, outcome);
  Program& program = newest();
  const bool unknown = !outcome.ok() && outcome.code() == ErrorCode::OutcomeUnknown;
  if (!unknown && members_of(program) == next) {
    ++changes_;
    if (outcome.ok()) known_.clear();  // else some may not know of it
    known_.insert(known_.begin(), next);
  } else if (unknown) {
    known_.push_back(next);
  } else if (outcome.ok()) {
    judge_.let_in(fmt::format("{}: the log has {}, and that is not what was asked for", what,
                              describe(program.log->configuration())));
  }
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (outcome.ok() && has(next, pool_of(index))) replicas_[index].foreign = false;
  }
  note_committed(program);
}

/// A replica whose machine has another pool by now.
std::optional<pmem::Uuid> LogWorld::dead_member(const Members& members) const {
  for (const pmem::Uuid& pool : members.pools) {
    if (!server_of(pool)) return pool;
  }
  return std::nullopt;
}

/// What a writer calls up that has just opened the log is whole. (Later it may be damaged without
/// its noticing.)
void LogWorld::heal(const Program& program) {
  if (program.log == nullptr) return;
  for (const ReplicaStatus& each : program.log->status().replicas) {
    const auto server = server_named(each.peer);
    const bool same = server && to_string(pool_of(*server)) == each.pool_uuid;
    if (each.up && same) note_equal(*server, Struck::InCall);
  }
}

/// The newest writer takes the pool of another machine for a replica of its log.
bool LogWorld::replace_member(const pmem::Uuid& which, std::size_t by) {
  Program& program = newest();
  Members next = members_of(program);
  const auto place = std::ranges::find(next.pools, which);
  if (place == next.pools.end()) return false;
  *place = pool_of(by);
  in_call_ = true;
  const auto replaced =
      program.log->replace_replica(to_string(which), peer_for(index_of(program), by));
  in_call_ = false;
  note_change(replaced, next, fmt::format("replace {} by replica{}", to_string(which), by));
  if (replaced.ok()) {
    verify_brought(by);
    return true;
  }
  refusal_code_ = replaced.code();
  if (replaced.code() == ErrorCode::AlreadyExists) start_blank(by);
  return false;
}

void LogWorld::add_replica(Random& choices) {
  if (!ensure_open(choices) || judge_.breach()) return;
  Program& program = newest();
  const std::vector<std::size_t> others = strangers();
  const Members before = members_of(program);
  if (others.empty()) return;
  const std::size_t by = others[choices.below(others.size())];
  Members next = changed(before, before.pools.size() + 1);
  next.pools.push_back(pool_of(by));
  if (!may_change(next, choices)) return;
  in_call_ = true;
  const auto added = program.log->add_replica(peer_for(index_of(program), by), 0);
  in_call_ = false;
  note_change(added, next, fmt::format("add replica{}", by));
  if (added.ok()) {
    verify_brought(by);
  } else if (added.code() == ErrorCode::AlreadyExists) {
    start_blank(by);
  }
}

void LogWorld::remove_replica(Random& choices) {
  if (!ensure_open(choices) || judge_.breach()) return;
  Program& program = newest();
  const Members before = members_of(program);
  if (before.pools.size() < 2) return;
  const std::size_t which = choices.below(before.pools.size());
  Members next = changed(before, before.pools.size() - 1);
  next.pools.erase(next.pools.begin() + static_cast<std::ptrdiff_t>(which));
  if (!may_change(next, choices)) return;
  const std::string name = to_string(before.pools[which]);
  in_call_ = true;
  const auto removed = program.log->remove_replica(name, 0);
  in_call_ = false;
  note_change(removed, next, "remove " + name);
}

/// The operator puts another pool in the place of one that is gone, or of any.
void LogWorld::replace_replica(Random& choices) {
  if (!ensure_open(choices) || judge_.breach()) return;
  const Members before = members_of(newest());
  const std::vector<std::size_t> others = strangers();
  if (others.empty()) return;
  const std::size_t by = others[choices.below(others.size())];
  const auto dead = dead_member(before);
  const pmem::Uuid which = dead ? *dead : before.pools[choices.below(before.pools.size())];
  Members next = before;
  *std::ranges::find(next.pools, which) = pool_of(by);
  if (!may_change(next, choices)) return;
  (void)replace_member(which, by);
}

void LogWorld::change_quorum(Random& choices) {
  if (!ensure_open(choices) || judge_.breach()) return;
  Members next = members_of(newest());
  next.quorum = 1 + choices.below(next.pools.size());
  if (!may_change(next, choices)) return;
  in_call_ = true;
  const auto changed = newest().log->change_quorum(next.quorum);
  in_call_ = false;
  note_change(changed, next, fmt::format("quorum {}", next.quorum));
}

}  // namespace perdure::test
