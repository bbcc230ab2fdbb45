// The law of sharing, clause by clause.
#include "core/method_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/try.h"

namespace perdure {
namespace {

using Kind = RequesterStep::Kind;

bool sends_messages(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(), is_message);
}

bool has_word(const SetMember& member) {
  return member.reuse != Reuse::Never && member.method.shape.items_per_epoch.size() > 1;
}

/// How an item comes to its place, and what is known by then of the updates before.
struct Way {
  enum class By { Write, AtomicWrite, Persist, Copy, Replay };
  By by = By::Write;
  /// It leaves when an operation that comes after all WRITEs before it has been answered: a
  /// non-posted one of the method, or a message of it.
  bool behind_non_posted = false;
  bool behind_message = false;
  /// The end of the update proves that it is there, for a load to see.
  bool end_proves_it = false;
};

Way::By by_of(const RequesterStep& step) {
  if (step.verb == Verb::WriteAtomic) return Way::By::AtomicWrite;
  if (step.verb == Verb::WritePersist) return Way::By::Persist;
  if (!sends_items(step.verb)) return Way::By::Write;
  return step.replay ? Way::By::Replay : Way::By::Copy;
}

/// The step whose answer step `wait` waits for, if it is answered after the WRITEs before it are
/// visible.
std::optional<std::size_t> proof(const Method& method, std::size_t wait) {
  const RequesterStep& step = method.requester[wait];
  if (step.kind == Kind::WaitCompletion && !is_posted(method.requester[step.of].verb)) {
    return step.of;
  }
  if (step.kind != Kind::WaitAck) return std::nullopt;
  std::optional<std::size_t> answered;
  std::size_t message = 0;
  for (std::size_t before = 0; before < wait; ++before) {
    if (!is_message(method.requester[before])) continue;
    if (message < method.responder.size() && acknowledges(method.responder[message])) {
      answered = before;
    }
    ++message;
  }
  return answered;
}

Way way_of(const Method& method, Item item) {
  Way way;
  std::optional<std::size_t> carried;  // by this step
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    const auto proven = step.kind == Kind::Post ? std::nullopt : proof(method, index);
    if (proven && carried) way.end_proves_it = way.end_proves_it || *proven >= *carried;
    if (proven && !carried) {
      (step.kind == Kind::WaitAck ? way.behind_message : way.behind_non_posted) = true;
    }
    const auto& items = step.items;
    const auto& readable = step.readable;
    const bool carries = step.kind == Kind::Post && brings_items(step.verb) &&
                         std::count(items.begin(), items.end(), item) != 0;
    // What the responder READs comes in the message's turn, as what it copies does.
    const bool fetched = std::count(readable.begin(), readable.end(), item) != 0;
    if (!carries && !fetched) continue;
    carried = index;
    way.by = fetched ? Way::By::Copy : by_of(step);
    if (sends_items(step.verb) && !step.replay) way.end_proves_it = false;
  }
  return way;
}

/// Whether an RNIC places it.
bool by_rnic(const Way& way) { return way.by < Way::By::Copy; }

/// Whether it is a WRITE, of either kind.
bool by_write(const Way& way) { return way.by == Way::By::Write || way.by == Way::By::Persist; }

/// What happens if an item that goes the newer way follows one that goes the older way to the same
/// place, before the older update has resolved.
std::optional<std::string_view> harm_in_flight(const Way& older, const Way& newer,
                                               const ServerProfile& profile) {
  const bool written = by_rnic(newer);
  switch (older.by) {
    case Way::By::Persist:
      if (newer.by == Way::By::Persist) break;  // each waits for those before it
      [[fallthrough]];
    case Way::By::Write: {
      const bool behind = newer.behind_non_posted || newer.behind_message;
      if (keeps_write_order(profile) || !by_write(newer) || behind) break;
      return "WRITEs keep no order here, so the older word could be placed over the newer one";
    }
    case Way::By::AtomicWrite:
      if (newer.by == Way::By::AtomicWrite || newer.behind_non_posted) break;
      return "a posted operation may overtake the ATOMIC WRITE before it, so the older word could "
             "be placed over the newer one";
    case Way::By::Copy:
      if (!written || newer.behind_message) break;
      return "the responder's processor may store the older word over the newer one, which was "
             "written meanwhile";
    case Way::By::Replay:
      if (!written) break;
      return "the older word may be applied from its message over the newer one, which was written";
  }
  return std::nullopt;
}

/// The same once the older update has resolved. `fenced`: and an update after it that proves that
/// WRITEs before it are visible.
std::optional<std::string_view> harm_after_end(const Way& older, const Way& newer, bool fenced,
                                               const ServerProfile& profile) {
  const bool written = by_rnic(newer);
  if (older.by == Way::By::Replay && written) {
    return "a message that is replayed is applied when its update has long resolved, over what was "
           "written to the same place meanwhile";
  }
  const bool behind = fenced || newer.behind_non_posted || newer.behind_message;
  const bool placed_late = older.by == Way::By::Write && !older.end_proves_it && by_write(newer) &&
                           !keeps_write_order(profile);
  if (placed_late && !behind) {
    return "the older update ends when the RNIC has it, which may place it over the newer one: "
           "WRITEs keep no order here";
  }
  return std::nullopt;
}

/// Whether the responder's processor stores it, message by message.
bool by_message(const Way& way) { return way.by == Way::By::Copy || way.by == Way::By::Replay; }

Error refusal(const SetMember& older, const SetMember& newer, std::string_view why) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("methods '{}' and '{}' can not share a connection: {}",
                           older.method.name, newer.method.name, why)};
}

Result<void> may_follow(const SetMember& older, const SetMember& newer,
                        const ServerProfile& profile) {
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
  const bool fenced = older.reuse == Reuse::AfterAnother;
  const auto harm =
      harm_after_end(way_of(older.method, 0), way_of(newer.method, 0), fenced, profile);
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

/// Whether any item of the newer method may be written where one of the older was. What ended on
/// arrival was no single place (may_follow), so its own is not written at once.
Result<void> may_take_over(const SetMember& older, const SetMember& newer,
                           const ServerProfile& profile) {
  for (std::size_t one = 0; one < older.method.shape.items(); ++one) {
    for (std::size_t other = 0; other < newer.method.shape.items(); ++other) {
      const auto harm =
          harm_after_end(way_of(older.method, static_cast<Item>(one)),
                         way_of(newer.method, static_cast<Item>(other)), true, profile);
      if (harm) return refusal(older, newer, *harm);
    }
  }
  return {};
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
      if (auto allowed = may_follow(older, newer, profile); !allowed) return allowed;
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
  for (std::size_t before = 0; before < older.size(); ++before) {
    for (std::size_t after = older.size(); after < all.size(); ++after) {
      PERDURE_TRY_VOID(may_take_over(all[before], all[after], profile));
    }
  }
  return {};
}

Result<void> may_share(const MethodSet& set, const ServerProfile& profile) {
  return may_share(members(set), profile);
}

}  // namespace perdure
