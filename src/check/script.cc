// Interleaves the steps of successive updates the way a pipelining requester posts them.
#include "check/script.h"

#include "core/assert.h"

#include <algorithm>

namespace perdure::check {
namespace {

/// One update on its way through the interleaving.
struct Cursor {
  std::size_t next = 0;             // step of the method
  std::size_t messages = 0;         // messages posted so far
  std::vector<std::size_t> placed;  // method step -> script step
};

bool is_message(const RequesterStep& step) {
  return step.kind == RequesterStep::Kind::Post &&
         (step.verb == Verb::Send || step.verb == Verb::WriteImm);
}

std::vector<Item> shifted(const std::vector<Item>& items, std::size_t by) {
  std::vector<Item> result;
  for (const Item item : items) result.push_back(static_cast<Item>(item + by));
  return result;
}

void place(const Method& method, std::size_t update, Cursor& cursor, Script& script) {
  RequesterStep step = method.requester[cursor.next];
  const std::size_t shift = update * method.shape.items();
  step.items = shifted(step.items, shift);
  step.flush = shifted(step.flush, shift);
  if (step.kind == RequesterStep::Kind::WaitCompletion) step.of = cursor.placed[step.of];
  if (is_message(step)) {
    std::vector<ResponderAction> reaction;
    if (cursor.messages < method.responder.size()) reaction = method.responder[cursor.messages];
    for (ResponderAction& action : reaction) action.item = static_cast<Item>(action.item + shift);
    script.reactions.push_back(std::move(reaction));
    ++cursor.messages;
  }
  cursor.placed.push_back(script.steps.size());
  script.steps.push_back(std::move(step));
  ++cursor.next;
}

void promise(const Method& method, std::size_t update, Between between, Script& script) {
  Promise promise;
  promise.step = script.steps.size();
  const std::size_t items = method.shape.items();
  const std::size_t first = between == Between::Independent ? update * items : 0;
  for (std::size_t item = first; item < (update + 1) * items; ++item) {
    promise.items.push_back(static_cast<Item>(item));
  }
  script.promises.push_back(std::move(promise));
}

/// The posts up to the update's next wait.
void place_posts(const Method& method, std::size_t update, Between between, Cursor& cursor,
                 Script& script) {
  const std::size_t end = method.requester.size();
  while (cursor.next < end && method.requester[cursor.next].kind == RequesterStep::Kind::Post) {
    place(method, update, cursor, script);
  }
  if (cursor.next == end) promise(method, update, between, script);
}

}  // namespace

std::string_view to_string(Between between) {
  switch (between) {
    case Between::Independent: return "independent";
    case Between::ToldInOrder: return "told-in-order";
    case Between::Ordered: return "ordered";
  }
  return "unknown";
}

Script make_script(const Method& method, std::size_t updates, Between between) {
  PERDURE_ASSERT(updates >= 1);
  Script script;
  std::vector<Cursor> cursors(updates);
  const std::size_t epochs = method.shape.items_per_epoch.size();
  for (std::size_t epoch = 0; epoch < updates * epochs; ++epoch) {
    const bool ordered = between == Between::Ordered;
    script.chain_end.push_back((ordered ? updates : epoch / epochs + 1) * epochs);
  }
  for (std::size_t update = 0; update < updates; ++update) {
    for (std::size_t item = 0; item < method.shape.items(); ++item) {
      const std::size_t epoch = method.shape.epoch_of(static_cast<Item>(item));
      script.epoch_of_item.push_back(static_cast<std::uint8_t>(update * epochs + epoch));
      script.small_item.push_back(!method.later_any_size && epoch > 0);
    }
    place_posts(method, update, between, cursors[update], script);
  }
  // Each round consumes one wait of every update, so the loop ends after the longest method.
  for (std::size_t round = 0; round < method.requester.size(); ++round) {
    for (std::size_t update = 0; update < updates; ++update) {
      Cursor& cursor = cursors[update];
      if (cursor.next == method.requester.size()) continue;
      place(method, update, cursor, script);
      if (cursor.next == method.requester.size()) {
        promise(method, update, between, script);
      } else {
        place_posts(method, update, between, cursor, script);
      }
    }
  }
  return script;
}

}  // namespace perdure::check
