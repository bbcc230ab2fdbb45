// Derived facts and descriptions of a Method.
#include "core/method.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

namespace perdure {

std::size_t UpdateShape::items() const {
  return std::accumulate(items_per_epoch.begin(), items_per_epoch.end(), std::size_t{0});
}

std::size_t UpdateShape::epoch_of(Item item) const {
  std::size_t first = 0;
  for (std::size_t epoch = 0; epoch < items_per_epoch.size(); ++epoch) {
    first += items_per_epoch[epoch];
    if (item < first) return epoch;
  }
  return items_per_epoch.size();
}

UpdateShape singleton() { return UpdateShape{{1}}; }
UpdateShape compound() { return UpdateShape{{1, 1}}; }

std::string to_string(const UpdateShape& shape) {
  if (shape == singleton()) return "singleton";
  if (shape == compound()) return "compound";
  return fmt::format("epochs {}", fmt::join(shape.items_per_epoch, "+"));
}

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::Write: return "write";
    case Verb::WriteImm: return "write_imm";
    case Verb::Send: return "send";
    case Verb::Read: return "read";
    case Verb::Flush: return "flush";
    case Verb::WriteAtomic: return "write_atomic";
    case Verb::WritePersist: return "write_persist";
    case Verb::SendFlush: return "send_flush";
    case Verb::WritePolled: return "write_polled";
  }
  return "unknown";
}

std::size_t round_trips(const Method& method) {
  return static_cast<std::size_t>(
      std::count_if(method.requester.begin(), method.requester.end(),
                    [](const auto& step) { return step.kind != RequesterStep::Kind::Post; }));
}

bool two_sided(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(),
                     [](const auto& step) { return step.kind == RequesterStep::Kind::WaitAck; });
}

bool acknowledges(const std::vector<ResponderAction>& reaction) {
  return std::any_of(reaction.begin(), reaction.end(), [](const ResponderAction& action) {
    return action.kind == ResponderAction::Kind::Ack;
  });
}

namespace {

template <typename Which>
bool any_action(const Method& method, Which which) {
  return std::any_of(method.responder.begin(), method.responder.end(), [&](const auto& reaction) {
    return std::any_of(reaction.begin(), reaction.end(), which);
  });
}

}  // namespace

bool fetches(const Method& method) {
  return any_action(method, [](const ResponderAction& action) {
    return action.kind == ResponderAction::Kind::Read;
  });
}

bool writes_acks(const Method& method) {
  return any_action(method, [](const ResponderAction& action) { return action.written; });
}

bool replays(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(),
                     [](const auto& step) { return step.replay; });
}

namespace {

/// Calls `which` with each message and what the responder does with it, until it says true.
template <typename Which>
bool any_message(const Method& method, Which which) {
  std::size_t message = 0;
  for (const RequesterStep& step : method.requester) {
    if (!is_message(step)) continue;
    if (message == method.responder.size()) return false;
    if (which(step, method.responder[message])) return true;
    ++message;
  }
  return false;
}

}  // namespace

bool acts_on_immediate(const Method& method) {
  return any_message(method, [](const RequesterStep& step, const auto& reaction) {
    return step.verb == Verb::WriteImm && acknowledges(reaction);
  });
}

bool asks_to_flush_writes(const Method& method) {
  const auto flushes_uncopied = [](const RequesterStep&, const auto& reaction) {
    std::vector<Item> copied;
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Copy) copied.push_back(action.item);
      if (action.kind != ResponderAction::Kind::Flush) continue;
      if (std::find(copied.begin(), copied.end(), action.item) == copied.end()) return true;
    }
    return false;
  };
  return acts_on_immediate(method) || any_message(method, flushes_uncopied);
}

Item covered_item(const Method& method, std::size_t index) {
  if (!method.requester[index].items.empty()) return method.requester[index].items.back();
  for (std::size_t before = index; before-- > 0;) {
    const RequesterStep& step = method.requester[before];
    if (step.kind == RequesterStep::Kind::Post && !step.items.empty()) return step.items.back();
  }
  return 0;
}

std::vector<Item> written_items(const Method& method, std::size_t index) {
  std::vector<Item> items;
  for (const Item item : method.requester[index].items) {
    const auto wrote = [&](const RequesterStep& step) {
      return step.kind == RequesterStep::Kind::Post && writes_items(step.verb) &&
             std::count(step.items.begin(), step.items.end(), item) != 0;
    };
    const auto begin = method.requester.begin();
    if (std::any_of(begin, begin + static_cast<std::ptrdiff_t>(index), wrote)) {
      items.push_back(item);
    }
  }
  return items;
}

namespace {

/// Whether a FLUSH is behind a message that survives in its receive buffer, and is to say that it
/// does.
bool follows_replayed(const Method& method, std::size_t index) {
  const std::vector<Item>& named = method.requester[index].items;
  const auto begin = method.requester.begin();
  return std::any_of(
      begin, begin + static_cast<std::ptrdiff_t>(index), [&](const RequesterStep& step) {
        if (step.kind != RequesterStep::Kind::Post || !step.replay) return false;
        return named.empty() || std::any_of(step.items.begin(), step.items.end(), [&](Item item) {
                 return std::count(named.begin(), named.end(), item) != 0;
               });
      });
}

/// Where a FLUSH says nothing of messages, a READ inside something written still pushes them.
bool lies_in_something_written(const Method& method, std::size_t index) {
  const std::vector<Item> written = written_items(method, index);
  return std::count(written.begin(), written.end(), covered_item(method, index)) != 0;
}

}  // namespace

bool speaks_for_messages(const Method& method, std::size_t flush) {
  return follows_replayed(method, flush) && !lies_in_something_written(method, flush);
}

bool rests_on_flushed_messages(const Method& method) {
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    const bool flushes = step.kind == RequesterStep::Kind::Post && step.verb == Verb::Flush;
    if (flushes && speaks_for_messages(method, index)) return true;
  }
  return false;
}

std::string_view why_refused(const Method& method, const ServerProfile& server) {
  if (!flushes_writes(server) && asks_to_flush_writes(method)) {
    return "it asks for a flush of what a WRITE brought, into pages of a file that the RNIC's "
           "writes leave clean";
  }
  if (flushes_no_messages(server) && rests_on_flushed_messages(method)) {
    return "behind a message, only a FLUSH to persistence says that it survives in its receive "
           "buffer on dmp, and this RNIC's reaches visibility only";
  }
  return {};
}

namespace {

Error malformed(const Method& method, std::size_t step, std::string_view what) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("method '{}', step {}: {}", method.name, step, what)};
}

/// What an SFLUSH can not flush: there is no message before it, or an item is in neither that one
/// nor written.
std::optional<std::string_view> out_of_reach(const Method& method, std::size_t index) {
  const auto begin = method.requester.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(index);
  const auto posts = [](const RequesterStep& step, auto which) {
    return step.kind == RequesterStep::Kind::Post && which(step.verb);
  };
  const auto message = std::find_if(
      std::make_reverse_iterator(end), std::make_reverse_iterator(begin),
      [&](const auto& step) { return posts(step, [](Verb v) { return v == Verb::Send; }); });
  if (message == std::make_reverse_iterator(begin)) return "flushes a SEND, and none is before it";
  for (const Item item : method.requester[index].items) {
    const auto names = [&](const RequesterStep& step) {
      return std::count(step.items.begin(), step.items.end(), item) != 0;
    };
    const bool written = std::any_of(begin, end, [&](const RequesterStep& step) {
      return posts(step, writes_items) && names(step);
    });
    if (!written && !names(*message)) {
      return "flushes an item that is neither written before it nor in the SEND before it";
    }
  }
  return std::nullopt;
}

Result<void> validate_step(const Method& method, std::size_t index) {
  const RequesterStep& step = method.requester[index];
  const std::size_t items = method.shape.items();
  for (const auto& list : {step.items, step.flush, step.readable}) {
    for (const Item item : list) {
      if (item >= items) return malformed(method, index, "names an item the update does not have");
    }
  }
  if (step.kind == RequesterStep::Kind::WaitCompletion) {
    if (step.of >= index) return malformed(method, index, "waits for a step that is not before it");
    if (method.requester[step.of].kind != RequesterStep::Kind::Post) {
      return malformed(method, index, "waits for a step that posts nothing");
    }
  }
  const bool posts = step.kind == RequesterStep::Kind::Post;
  if (posts && step.verb == Verb::SendFlush) {
    if (const auto why = out_of_reach(method, index)) return malformed(method, index, *why);
  }
  const bool in_message = posts && sends_items(step.verb);
  const bool names = !step.flush.empty() || !step.readable.empty();
  if ((!in_message && names) || (step.replay && step.verb != Verb::Send)) {
    return malformed(method, index, "only a SEND carries addresses or can be replayed");
  }
  if (step.checked && step.verb != Verb::WritePolled) {
    return malformed(method, index, "only a polled WRITE is checked before it is acted on");
  }
  return {};
}

/// What the responder can not READ, or waits for in vain.
Result<void> validate_reads(const Method& method) {
  std::vector<bool> begun(method.shape.items(), false);
  std::size_t message = 0;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    if (!is_message(step) || message == method.responder.size()) continue;
    for (const ResponderAction& action : method.responder[message++]) {
      if (action.written && action.kind != ResponderAction::Kind::Ack) {
        return malformed(method, index, "only an acknowledgement is written to the requester");
      }
      const bool reads = action.kind == ResponderAction::Kind::Read;
      const auto& named = step.readable;
      if (reads && std::count(named.begin(), named.end(), action.item) == 0) {
        return malformed(method, index, "does not say where the responder finds what it READs");
      }
      if (action.kind == ResponderAction::Kind::Await && !begun[action.item]) {
        return malformed(method, index,
                         "makes the responder wait for a READ that it has not posted");
      }
      if (reads) begun[action.item] = true;
    }
  }
  return {};
}

}  // namespace

Result<void> validate(const Method& method) {
  const std::size_t items = method.shape.items();
  if (items == 0 || items > kItemsMax) return malformed(method, 0, "has no items, or too many");
  std::vector<bool> written(items, false);
  std::size_t messages = 0;
  std::size_t acks_awaited = 0;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    if (auto valid = validate_step(method, index); !valid) return valid;
    if (is_message(step)) ++messages;
    if (step.kind == RequesterStep::Kind::WaitAck) ++acks_awaited;
    if (step.kind == RequesterStep::Kind::Post && brings_items(step.verb)) {
      for (const Item item : step.items) written[item] = true;
    }
  }
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      const bool reads = action.kind == ResponderAction::Kind::Read && action.item < items;
      if (reads) written[action.item] = true;
    }
  }
  if (std::find(written.begin(), written.end(), false) != written.end()) {
    return malformed(method, 0, "never writes one of its items");
  }
  if (method.responder.size() > messages) {
    return malformed(method, 0, "has more reactions than messages");
  }
  std::size_t acks_sent = 0;
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Ack) {
        ++acks_sent;
      } else if (action.item >= items) {
        return malformed(method, 0, "has a reaction to an item the update does not have");
      }
    }
  }
  if (acks_sent != acks_awaited) return malformed(method, 0, "awaits other acks than are sent");
  return validate_reads(method);
}

std::string item_name(Item item) {
  if (item < 26) return std::string(1, static_cast<char>('a' + item));
  return fmt::format("i{}", item);
}

namespace {

std::string item_names(const std::vector<Item>& items) {
  std::string names;
  for (const Item item : items) names += (names.empty() ? "" : ",") + item_name(item);
  return names;
}

std::string verb_words(Verb verb) {
  switch (verb) {
    case Verb::Write: return "WRITE";
    case Verb::WriteImm: return "WRITE_WITH_IMM";
    case Verb::Send: return "SEND";
    case Verb::Read: return "READ";
    case Verb::Flush: return "FLUSH";
    case Verb::WriteAtomic: return "ATOMIC WRITE";
    case Verb::WritePersist: return "PWRITE";
    case Verb::SendFlush: return "SFLUSH";
    case Verb::WritePolled: return "polled WRITE";
  }
  return "?";
}

}  // namespace

std::string describe(const RequesterStep& step) {
  switch (step.kind) {
    case RequesterStep::Kind::WaitAck: return "wait for the ack";
    case RequesterStep::Kind::WaitCompletion:
      return fmt::format("wait for the completion of step {}", step.of);
    case RequesterStep::Kind::Post: break;
  }
  std::string words = verb_words(step.verb);
  if (!step.items.empty()) words += " " + item_names(step.items);
  if (!step.flush.empty()) words += " (flush " + item_names(step.flush) + ")";
  if (!step.readable.empty()) words += " (readable " + item_names(step.readable) + ")";
  if (step.replay) words += " (replayable)";
  if (step.checked) words += " (checked)";
  if (step.fenced) words += " (fenced)";
  return words;
}

std::string describe(const ResponderAction& action) {
  switch (action.kind) {
    case ResponderAction::Kind::Copy: return "copy " + item_name(action.item);
    case ResponderAction::Kind::Read: return "READ " + item_name(action.item);
    case ResponderAction::Kind::Await: return "wait for READ " + item_name(action.item);
    case ResponderAction::Kind::Flush: return "flush " + item_name(action.item);
    case ResponderAction::Kind::Ack: return action.written ? "WRITE the ack" : "send the ack";
  }
  return "?";
}

}  // namespace perdure
