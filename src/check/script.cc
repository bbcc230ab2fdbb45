// Interleaves the steps of successive updates the way a pipelining requester posts them.
#include "check/script.h"

#include "core/assert.h"

#include <algorithm>

namespace perdure::check {
namespace {

std::size_t latest_epoch(const UpdateShape& shape, const RequesterStep& step) {
  std::size_t latest = 0;
  for (const Item item : step.items) latest = std::max(latest, shape.epoch_of(item));
  for (const Item item : step.flush) latest = std::max(latest, shape.epoch_of(item));
  for (const Item item : step.readable) latest = std::max(latest, shape.epoch_of(item));
  return latest;
}

/// One update on its way through the interleaving.
struct Cursor {
  std::size_t next = 0;             // step of the method
  std::size_t messages = 0;         // messages posted so far
  std::size_t connection = 0;       // of the post before
  std::vector<std::size_t> placed;  // method step -> script step
};

std::vector<Item> shifted(const std::vector<Item>& items, std::size_t by) {
  std::vector<Item> result;
  for (const Item item : items) result.push_back(static_cast<Item>(item + by));
  return result;
}

/// The step that posts a message.
std::size_t step_of(const Script& script, std::size_t message) {
  std::size_t step = 0;
  for (std::size_t met = 0;; ++step) {
    PERDURE_ASSERT(step < script.steps.size());
    if (is_message(script.steps[step]) && met++ == message) return step;
  }
}

/// The next message of the connection that the responder reacts to, if it may have come together
/// with this one.
std::optional<std::size_t> next_together(const Script& script, std::size_t message) {
  const std::size_t first = step_of(script, message);
  for (std::size_t step = first + 1; step < script.steps.size(); ++step) {
    if (script.steps[step].kind != RequesterStep::Kind::Post) return std::nullopt;
    if (!is_message(script.steps[step])) continue;
    ++message;
    const bool same = script.connection_of_step[step] == script.connection_of_step[first];
    if (same && !script.reactions[message].empty()) return message;
  }
  return std::nullopt;
}

/// Moves the flushes that a message ends with, and its acknowledgement, into the next message that
/// came with it: the flushes before that one's first, the acknowledgement before its own.
void gather(std::size_t message, Script& script) {
  using Action = ResponderAction::Kind;
  const auto next = next_together(script, message);
  if (!next) return;
  const auto is_flush = [](const auto& action) { return action.kind == Action::Flush; };
  const auto is_ack = [](const auto& action) { return action.kind == Action::Ack; };
  std::vector<ResponderAction>& from = script.reactions[message];
  const auto ends = [&](const auto& action) { return is_flush(action) || is_ack(action); };
  const auto begin = std::find_if_not(from.rbegin(), from.rend(), ends).base();
  std::vector<ResponderAction> moved(begin, from.end());
  from.erase(begin, from.end());
  const auto acks = std::stable_partition(moved.begin(), moved.end(), is_flush);
  std::vector<ResponderAction>& into = script.reactions[*next];
  into.insert(std::find_if(into.begin(), into.end(), is_ack), acks, moved.end());
  into.insert(std::find_if(into.begin(), into.end(), ends), moved.begin(), acks);
}

/// Places steps into one script.
class Interleaving {
 public:
  Interleaving(const Method& method, const InFlight& in_flight)
      : method_(method), in_flight_(in_flight), cursors_(in_flight.updates) {
    script_.connections = in_flight.connections;
  }

  Script run() {
    chains();
    for (std::size_t update = 0; update < in_flight_.updates; ++update) {
      cursors_[update].connection = update % in_flight_.connections;
      items(update);
      place_posts(update);
    }
    // Each round consumes one wait of every update, so the loop ends after the longest method.
    for (std::size_t round = 0; round < method_.requester.size(); ++round) {
      for (std::size_t update = 0; update < in_flight_.updates; ++update) {
        if (cursors_[update].next == method_.requester.size()) continue;
        place(update);
        place_posts(update);
      }
    }
    return std::move(script_);
  }

 private:
  std::size_t epochs() const { return method_.shape.items_per_epoch.size(); }

  void chains() {
    const bool ordered = in_flight_.between == Between::Ordered;
    for (std::size_t epoch = 0; epoch < in_flight_.updates * epochs(); ++epoch) {
      const std::size_t end = (ordered ? in_flight_.updates : epoch / epochs() + 1) * epochs();
      std::vector<std::size_t> later;
      for (std::size_t other = epoch + 1; other < end; ++other) later.push_back(other);
      script_.dependents.push_back(std::move(later));
    }
  }

  void items(std::size_t update) {
    for (std::size_t item = 0; item < method_.shape.items(); ++item) {
      const std::size_t epoch = method_.shape.epoch_of(static_cast<Item>(item));
      script_.epoch_of_item.push_back(static_cast<std::uint8_t>(update * epochs() + epoch));
      script_.small_item.push_back(!method_.later_any_size && epoch > 0);
    }
  }

  std::size_t connection_of(const RequesterStep& step, std::size_t update) const {
    const bool names = !step.items.empty() || !step.flush.empty() || !step.readable.empty();
    if (in_flight_.spread == Spread::Updates || !names) return cursors_[update].connection;
    return (update * epochs() + latest_epoch(method_.shape, step)) % in_flight_.connections;
  }

  void place(std::size_t update) {
    Cursor& cursor = cursors_[update];
    RequesterStep step = method_.requester[cursor.next];
    if (step.kind == RequesterStep::Kind::Post) cursor.connection = connection_of(step, update);
    const std::size_t shift = update * method_.shape.items();
    step.items = shifted(step.items, shift);
    step.flush = shifted(step.flush, shift);
    step.readable = shifted(step.readable, shift);
    if (step.kind == RequesterStep::Kind::WaitCompletion) step.of = cursor.placed[step.of];
    if (is_message(step)) {
      std::vector<ResponderAction> reaction;
      if (cursor.messages < method_.responder.size()) reaction = method_.responder[cursor.messages];
      for (ResponderAction& action : reaction) action.item = static_cast<Item>(action.item + shift);
      script_.reactions.push_back(std::move(reaction));
      ++cursor.messages;
    }
    cursor.placed.push_back(script_.steps.size());
    script_.steps.push_back(std::move(step));
    script_.connection_of_step.push_back(static_cast<std::uint8_t>(cursor.connection));
    ++cursor.next;
  }

  /// The posts up to the update's next wait; after the last one, the promise.
  void place_posts(std::size_t update) {
    Cursor& cursor = cursors_[update];
    const auto& steps = method_.requester;
    while (cursor.next < steps.size() && steps[cursor.next].kind == RequesterStep::Kind::Post) {
      place(update);
    }
    if (cursor.next == steps.size()) promise(update);
  }

  void promise(std::size_t update) {
    Promise promise;
    promise.step = script_.steps.size();
    const std::size_t items = method_.shape.items();
    const bool alone = in_flight_.between == Between::Independent;
    for (std::size_t item = alone ? update * items : 0; item < (update + 1) * items; ++item) {
      promise.items.push_back(static_cast<Item>(item));
    }
    script_.promises.push_back(std::move(promise));
  }

  const Method& method_;
  const InFlight& in_flight_;
  std::vector<Cursor> cursors_;
  Script script_;
};

}  // namespace

std::string_view to_string(Between between) {
  switch (between) {
    case Between::Independent: return "independent";
    case Between::AcknowledgedInOrder: return "acknowledged-in-order";
    case Between::Ordered: return "ordered";
  }
  return "unknown";
}

std::string_view to_string(Spread spread) {
  switch (spread) {
    case Spread::Epochs: return "epochs";
    case Spread::Updates: return "updates";
  }
  return "unknown";
}

Script make_script(const Method& method, const InFlight& in_flight) {
  PERDURE_ASSERT(in_flight.updates >= 1);
  PERDURE_ASSERT(in_flight.connections >= 1);
  Script script = Interleaving(method, in_flight).run();
  for (std::size_t message = 0; in_flight.gathered && message < script.reactions.size();
       ++message) {
    gather(message, script);
  }
  return script;
}

}  // namespace perdure::check
