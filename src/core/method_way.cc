// What waits and messages of a method say; how the machine orders them is in check/model.h.
#include "core/method_way.h"

#include <algorithm>
#include <optional>

namespace perdure {
namespace {

using Kind = RequesterStep::Kind;

Way::By by_of(const RequesterStep& step) {
  if (step.verb == Verb::WriteAtomic) return Way::By::AtomicWrite;
  if (step.verb == Verb::WritePersist) return Way::By::Persist;
  if (!sends_items(step.verb)) return Way::By::Write;
  return step.replay ? Way::By::Replay : Way::By::Copy;
}

/// The step whose answer step `wait` waits for: a non-posted operation or a message.
std::optional<std::size_t> answered(const Method& method, std::size_t wait) {
  const RequesterStep& step = method.requester[wait];
  if (step.kind == Kind::WaitCompletion && !is_posted(method.requester[step.of].verb)) {
    return step.of;
  }
  if (step.kind != Kind::WaitAck) return std::nullopt;
  std::optional<std::size_t> last;
  std::size_t message = 0;
  for (std::size_t before = 0; before < wait; ++before) {
    if (!is_message(method.requester[before])) continue;
    if (message < method.responder.size() && acknowledges(method.responder[message])) {
      last = before;
    }
    ++message;
  }
  return last;
}

/// Whether the responder does something when it has the message that a step posts.
bool is_handled(const Method& method, std::size_t step) {
  const auto begin = method.requester.begin();
  const auto at = begin + static_cast<std::ptrdiff_t>(step);
  if (!is_message(*at)) return false;
  const auto message = static_cast<std::size_t>(std::count_if(begin, at, is_message));
  return at->replay || (message < method.responder.size() && !method.responder[message].empty());
}

/// The step on whose message the responder stores what step `sent` sends or lets it READ: that one,
/// or a later one.
std::size_t stored_on(const Method& method, Item item, std::size_t sent) {
  std::size_t message = 0;
  for (std::size_t step = 0; step < method.requester.size(); ++step) {
    if (!is_message(method.requester[step])) continue;
    if (message == method.responder.size()) break;
    const auto& reaction = method.responder[message++];
    const bool stores = std::any_of(reaction.begin(), reaction.end(), [&](const auto& action) {
      return action.item == item && (action.kind == ResponderAction::Kind::Copy ||
                                     action.kind == ResponderAction::Kind::Read);
    });
    if (step >= sent && stores) return step;
  }
  return sent;
}

/// Whether one of the steps from `first` to `last` posts a message that the responder handles on
/// its receive completion, which comes when all WRITEs before it are visible.
bool is_received(const Method& method, std::size_t first, std::size_t last) {
  for (std::size_t step = first; step <= last; ++step) {
    if (takes_receive_buffer(method.requester[step]) && is_handled(method, step)) return true;
  }
  return false;
}

/// Whether all before a non-posted operation is visible when it takes effect. A READ, which may
/// stand in for a FLUSH, says nothing unless it lies in what was written before it.
bool pushes_writes(const Method& method, std::size_t at) {
  const RequesterStep& step = method.requester[at];
  if (step.verb != Verb::Read && step.verb != Verb::Flush) return true;
  if (step.items.empty()) return false;
  const auto begin = method.requester.begin();
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(at), [&](const auto& before) {
    return before.kind == Kind::Post && writes_items(before.verb) &&
           std::count(before.items.begin(), before.items.end(), step.items.back()) != 0;
  });
}

/// What is certain of all before the update once step `at` has been answered, or the responder
/// handles the message that it posts. That it found one by polling says nothing of WRITEs before
/// it; but it handles messages in the order of posting.
Certain certain_at(const Method& method, std::size_t at) {
  Certain certain;
  if (!is_posted(method.requester[at].verb)) {
    certain.writes_visible = pushes_writes(method, at);
    certain.atomics_visible = true;
    return certain;
  }
  certain.writes_visible = is_received(method, 0, at);
  certain.messages_handled = is_handled(method, at);
  return certain;
}

/// Whether an item that step `placed` brings is there, for a load to see, once wait `at` is over.
bool proves(const Method& method, std::size_t at, Way::By by, std::size_t placed) {
  const RequesterStep& wait = method.requester[at];
  const bool persisted = wait.kind == Kind::WaitCompletion && wait.of >= placed &&
                         method.requester[wait.of].verb == Verb::WritePersist;
  if (persisted) return by == Way::By::Persist;
  const auto step = answered(method, at);
  if (!step || *step < placed) return false;
  const bool handled = is_message(method.requester[*step]);
  switch (by) {
    case Way::By::Write:
    case Way::By::Persist:
      return handled ? is_received(method, placed, *step) : pushes_writes(method, *step);
    case Way::By::AtomicWrite: return !handled;
    case Way::By::Copy: return handled;
    case Way::By::Replay: break;
  }
  return false;
}

}  // namespace

Certain either(const Certain& one, const Certain& other) {
  return {one.writes_visible || other.writes_visible, one.atomics_visible || other.atomics_visible,
          one.messages_handled || other.messages_handled};
}

Certain both(const Certain& one, const Certain& other) {
  return {one.writes_visible && other.writes_visible, one.atomics_visible && other.atomics_visible,
          one.messages_handled && other.messages_handled};
}

Certain certain_at_end(const Method& method) {
  Certain certain;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const auto step = answered(method, index);
    if (step) certain = either(certain, certain_at(method, *step));
  }
  return certain;
}

Way way_of(const Method& method, Item item) {
  Way way;
  Certain waited;
  std::optional<std::size_t> placed;  // by this step
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    if (step.kind != Kind::Post) {
      if (const auto by = answered(method, index)) waited = either(waited, certain_at(method, *by));
      if (placed && proves(method, index, way.by, *placed)) way.ends_there = true;
      continue;
    }
    const auto& items = step.items;
    const auto& readable = step.readable;
    const bool brings =
        brings_items(step.verb) && std::count(items.begin(), items.end(), item) != 0;
    // What the responder READs comes in the message's turn, as what it copies does.
    const bool fetched = std::count(readable.begin(), readable.end(), item) != 0;
    if (!brings && !fetched) continue;
    way = Way{};
    way.by = fetched ? Way::By::Copy : by_of(step);
    placed = way.by == Way::By::Copy ? stored_on(method, item, index) : index;
    const bool in_turn = by_message(way) || !is_posted(step.verb);
    way.before = in_turn ? either(waited, certain_at(method, *placed)) : waited;
    way.received = is_received(method, index, method.requester.size() - 1);
  }
  return way;
}

}  // namespace perdure
