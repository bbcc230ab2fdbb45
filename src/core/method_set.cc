// The law of sharing, clause by clause.
#include "core/method_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/method_way.h"
#include "core/try.h"

namespace perdure {
namespace {

bool sends_messages(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(), is_message);
}

bool has_word(const SetMember& member) {
  return member.reuse != Reuse::Never && member.method.shape.items_per_epoch.size() > 1;
}

/// Whether an older item that was written is visible when so much is certain of all up to it.
bool is_visible(const Way& older, const Certain& certain) {
  return certain.writes_visible || (certain.messages_handled && older.received);
}

/// Whether an item that goes the older way may come to its place over one that goes the newer way.
/// So much is `certain` of all before the newer one when that comes.
bool comes_late(const Way& older, const Way& newer, const Certain& certain,
                const ServerProfile& profile) {
  switch (older.by) {
    case Way::By::Persist:
      if (newer.by == Way::By::Persist) return false;  // each waits for those before it
      [[fallthrough]];
    case Way::By::Write: return !keeps_write_order(profile) && !is_visible(older, certain);
    case Way::By::AtomicWrite: return !certain.atomics_visible;
    case Way::By::Copy: return !certain.messages_handled;
    case Way::By::Replay: return by_rnic(newer);
  }
  return true;
}

/// What happens if an item that goes the newer way follows one that goes the older way to the same
/// place, before the older update has resolved.
std::optional<std::string_view> harm_in_flight(const Way& older, const Way& newer,
                                               const ServerProfile& profile) {
  if (!comes_late(older, newer, newer.before, profile)) return std::nullopt;
  switch (older.by) {
    case Way::By::Write:
    case Way::By::Persist: break;
    case Way::By::AtomicWrite:
      return "a posted operation may overtake the ATOMIC WRITE before it, so the older word could "
             "be placed over the newer one";
    case Way::By::Copy:
      return "the responder's processor may store the older word over the newer one, which was "
             "written meanwhile";
    case Way::By::Replay:
      return "the older word may be applied from its message over the newer one, which was written";
  }
  return "WRITEs keep no order here, so the older word could be placed over the newer one";
}

/// The same once the older update has resolved, and something else of which `between` is certain.
std::optional<std::string_view> harm_after_end(const Way& older, const Way& newer,
                                               const Certain& between,
                                               const ServerProfile& profile) {
  const bool late = comes_late(older, newer, either(between, newer.before), profile);
  if (older.ends_there || !late) return std::nullopt;
  switch (older.by) {
    case Way::By::Write:
    case Way::By::Persist: break;
    case Way::By::AtomicWrite:
      return "the older update ends when the RNIC has its ATOMIC WRITE, which a posted operation "
             "may overtake";
    case Way::By::Copy:
      return "the older update ends before the responder's processor has stored it, perhaps over "
             "the newer one";
    case Way::By::Replay:
      return "a message that is replayed is applied when its update has long resolved, over what "
             "was written to the same place meanwhile";
  }
  return "the older update ends when the RNIC has it, which may place it over the newer one: "
         "WRITEs keep no order here";
}

Error refusal(const SetMember& older, const SetMember& newer, std::string_view why) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("methods '{}' and '{}' can not share a connection: {}",
                           older.method.name, newer.method.name, why)};
}

/// Whether the newer method may write to the space of a record of the older one, once an update of
/// any of the places has ended.
Result<void> may_reuse(const SetMember& older, const SetMember& newer,
                       const std::vector<SetMember>& members, const ServerProfile& profile) {
  const Way before = way_of(older.method, 0);
  const Way after = way_of(newer.method, 0);
  const auto harm = harm_after_end(before, after, kAllCertain, profile);
  if (harm) return refusal(older, newer, *harm);
  for (const SetMember& place : members) {
    if (place.reuse != Reuse::AfterItsEnd) continue;
    if (!harm_after_end(before, after, certain_at_end(place.method), profile)) continue;
    return refusal(older, place,
                   "the one ends when the RNIC has it, and the end of the other does not say that "
                   "it is placed: it may come over what is written to its space next");
  }
  return {};
}

Result<void> may_follow(const SetMember& older, const SetMember& newer,
                        const std::vector<SetMember>& members, const ServerProfile& profile) {
  if (has_word(older) && has_word(newer)) {
    const auto word = [](const SetMember& member) {
      return way_of(member.method, static_cast<Item>(member.method.shape.items() - 1));
    };
    const auto harm = harm_in_flight(word(older), word(newer), profile);
    if (harm) return refusal(older, newer, *harm);
  }
  if (older.vouched && !has_word(older) && has_word(newer)) {
    // A FLUSH in flight says nothing of a message that overtakes it, nor a message of a WRITE; each
    // PWRITE waits for those before it.
    const Item word = static_cast<Item>(newer.method.shape.items() - 1);
    const Way piece = way_of(older.method, 0);
    const Way last = way_of(newer.method, word);
    const bool in_order = piece.by == Way::By::Persist && last.by == Way::By::Persist;
    if (!in_order && !(by_message(piece) && by_message(last))) {
      return refusal(older, newer,
                     "the word of the one could survive without the piece before it that the other "
                     "is still about to make durable");
    }
  }
  if (older.reuse == Reuse::Never || newer.reuse == Reuse::Never) return {};
  if (older.reuse == Reuse::AfterAnother) return may_reuse(older, newer, members, profile);
  const auto harm = harm_after_end(way_of(older.method, 0), way_of(newer.method, 0), {}, profile);
  if (harm) return refusal(older, newer, *harm);
  return {};
}

Result<void> replay_all_or_none(const std::vector<SetMember>& members) {
  for (const SetMember& one : members) {
    for (const SetMember& other : members) {
      if (!replays(one.method) || !sends_messages(other.method) || replays(other.method)) continue;
      return refusal(one, other,
                     "replay stops at the first message that it can not apply, so what comes after "
                     "one of the other method would be lost");
    }
  }
  return {};
}

/// Whether any item of the newer method may be written where one of the older was. What its own
/// method could not write again at once was a ring's space, so a place is written `between`.
Result<void> may_take_over(const SetMember& older, const SetMember& newer, const Certain& between,
                           const ServerProfile& profile) {
  for (std::size_t one = 0; one < older.method.shape.items(); ++one) {
    const Way before = way_of(older.method, static_cast<Item>(one));
    const bool at_once = !harm_after_end(before, before, {}, profile);
    for (std::size_t other = 0; other < newer.method.shape.items(); ++other) {
      const Way after = way_of(newer.method, static_cast<Item>(other));
      const auto harm = harm_after_end(before, after, at_once ? Certain{} : between, profile);
      if (harm) return refusal(older, newer, *harm);
    }
  }
  return {};
}

/// What is certain once an update of a single place has ended, by any that could write one: not by
/// what ends when the RNIC has it, where it may be placed over what is written next.
Certain certain_after_places(const std::vector<Method>& methods, const ServerProfile& profile) {
  Certain certain = kAllCertain;
  for (const Method& method : methods) {
    const Way way = way_of(method, 0);
    const bool single = method.shape.items_per_epoch.size() == 1;
    if (!single || harm_after_end(way, way, {}, profile)) continue;
    certain = both(certain, certain_at_end(method));
  }
  return certain;
}

}  // namespace

std::string_view to_string(Reuse reuse) {
  switch (reuse) {
    case Reuse::Never: return "never";
    case Reuse::AfterAnother: return "after-another";
    case Reuse::AfterItsEnd: return "after-its-end";
  }
  return "unknown";
}

std::vector<SetMember> members(const MethodSet& set) {
  const bool pieces = set.batches.bytes_max != std::numeric_limits<std::uint64_t>::max();
  std::vector<SetMember> all;
  const auto add = [&](const Method& method, Reuse reuse, bool vouched) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const SetMember& each) {
      return each.method == method && each.reuse == reuse;
    });
    if (!known) all.push_back({method, reuse, vouched});
  };
  add(set.batches.small, Reuse::AfterAnother, true);
  add(set.batches.large, Reuse::AfterAnother, true);
  add(set.places.small, Reuse::AfterItsEnd, pieces);
  add(set.places.large, Reuse::AfterItsEnd, pieces);
  return all;
}

Result<void> may_share(const std::vector<SetMember>& members, const ServerProfile& profile) {
  PERDURE_TRY_VOID(replay_all_or_none(members));
  for (const SetMember& older : members) {
    for (const SetMember& newer : members) {
      if (auto allowed = may_follow(older, newer, members, profile); !allowed) return allowed;
    }
  }
  return {};
}

Result<void> may_replace(const std::vector<Method>& older, const std::vector<Method>& newer,
                         const ServerProfile& profile) {
  std::vector<SetMember> all;
  for (const std::vector<Method>* methods : {&older, &newer}) {
    for (const Method& method : *methods) all.push_back({method, Reuse::Never, false});
  }
  PERDURE_TRY_VOID(replay_all_or_none(all));
  const Certain between = certain_after_places(newer, profile);
  for (std::size_t before = 0; before < older.size(); ++before) {
    for (std::size_t after = older.size(); after < all.size(); ++after) {
      PERDURE_TRY_VOID(may_take_over(all[before], all[after], between, profile));
    }
  }
  return {};
}

Result<void> may_share(const MethodSet& set, const ServerProfile& profile) {
  return may_share(members(set), profile);
}

}  // namespace perdure
