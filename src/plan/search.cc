// Depth-first generation of sequences of one length after the other.
#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"
#include "plan/steps.h"

namespace perdure::plan {
namespace {

using Kind = RequesterStep::Kind;

Primary primary_of(Verb verb) {
  if (verb == Verb::Send) return Primary::Send;
  return verb == Verb::WriteImm ? Primary::WriteImm : Primary::Write;
}

class Generator {
 public:
  Generator(const ServerProfile& server, const SearchOptions& options, const Judge& judge)
      : server_(server), options_(options), judge_(judge), items_(options.shape.items()) {
    PERDURE_ASSERT(items_ >= 1 && items_ <= 3);
    flushes_ = server.domain == PersistenceDomain::Dmp || server.domain == PersistenceDomain::Page;
    replayable_ = server.receive_buffers == ReceiveBuffers::Pm;
  }

  SearchResult run() {
    method_.shape = options_.shape;
    for (std::size_t posts = 1; posts <= options_.posts_max && !result_.limit_reached; ++posts) {
      extend(posts);
    }
    drop_beaten();
    return std::move(result_);
  }

 private:
  /// What has been sent so far; copied on the way down.
  struct Sent {
    unsigned carried = 0;   // bit per item: by any post
    unsigned written = 0;   // by WRITE, WRITE_WITH_IMM or ATOMIC WRITE
    unsigned received = 0;  // in messages that are not replayed
    unsigned handled = 0;   // by a reaction
  };

  unsigned all() const { return (1u << items_) - 1; }

  void extend(std::size_t posts_left) { extend(posts_left, Sent{}); }

  void extend(std::size_t posts_left, const Sent& sent) {
    if (result_.limit_reached) return;
    if (posts_left == 0) {
      if (sent.carried == all() && method_.requester.back().kind != Kind::Post) judge_one();
      return;
    }
    for (std::size_t index = 0; index < items_; ++index) {
      if ((sent.carried >> index & 1) != 0) continue;
      const Item item = static_cast<Item>(index);
      Sent after = sent;
      after.carried |= 1u << index;
      after.written |= 1u << index;
      step(write({item}), posts_left, after);
      step(write_imm({item}), posts_left, after);
      const bool small = options_.later_small && options_.shape.epoch_of(item) > 0;
      if (small && server_.capabilities.atomic_write) {
        step(write_atomic(item), posts_left, after);
      }
      if (server_.capabilities.ordered_persist) step(pwrite({item}), posts_left, after);
    }
    extend_with_message(posts_left, sent);
    if (sent.carried != 0) step(flush(items_of(sent.carried)), posts_left, sent);
    if (!server_.capabilities.send_flush) return;
    const auto& steps = method_.requester;
    const auto message = std::find_if(steps.rbegin(), steps.rend(), [](const RequesterStep& each) {
      return each.kind == Kind::Post && each.verb == Verb::Send;
    });
    if (message == steps.rend()) return;
    unsigned named = sent.written;
    for (const Item item : message->items) named |= 1u << item;
    step(sflush(items_of(named)), posts_left, sent);
  }

  void extend_with_message(std::size_t posts_left, const Sent& sent) {
    const unsigned free = all() & ~sent.carried;
    const unsigned unhandled = sent.written & ~sent.handled;
    for (unsigned items = 0; items <= all(); ++items) {
      if ((items & ~free) != 0) continue;
      Sent after = sent;
      after.carried |= items;
      after.received |= items;
      if (items != 0 || unhandled != 0) {
        step(send(items_of(items), items_of(unhandled)), posts_left, after);
      }
      if (items != 0 && replayable_) {
        after.received = sent.received;
        step(send_replayable(items_of(items)), posts_left, after);
      }
    }
  }

  static std::vector<Item> items_of(unsigned mask) {
    std::vector<Item> items;
    for (unsigned item = 0; mask >> item != 0; ++item) {
      if ((mask >> item & 1) != 0) items.push_back(static_cast<Item>(item));
    }
    return items;
  }

  /// Adds the post with each way to wait for it and, for a message, with and without a reaction.
  void step(RequesterStep post, std::size_t posts_left, const Sent& sent) {
    const bool wrong_primary = options_.primary && !post.items.empty() && post.items.front() == 0 &&
                               brings_items(post.verb) &&
                               primary_of(post.verb) != *options_.primary;
    if (wrong_primary) return;
    const bool message = is_message(post);
    method_.requester.push_back(std::move(post));
    const std::size_t index = method_.requester.size() - 1;
    if (message) method_.responder.emplace_back();
    extend(posts_left - 1, sent);
    method_.requester.push_back(wait_completion(index));
    extend(posts_left - 1, sent);
    method_.requester.pop_back();
    if (message) {
      Sent after = sent;
      method_.responder.back() = react(after);
      method_.requester.push_back(wait_ack());
      extend(posts_left - 1, after);
      method_.requester.pop_back();
      method_.responder.pop_back();
    }
    method_.requester.pop_back();
  }

  std::vector<ResponderAction> react(Sent& sent) const {
    std::vector<ResponderAction> reaction;
    for (std::size_t index = 0; index < items_; ++index) {
      const unsigned bit = 1u << index;
      if ((sent.handled & bit) != 0 || (sent.carried & bit) == 0) continue;
      const Item item = static_cast<Item>(index);
      const bool copies = (sent.received & bit) != 0;
      if (!copies && (sent.written & bit) == 0) continue;
      if (copies) reaction.push_back(copy_item(item));
      if (flushes_) reaction.push_back(flush_item(item));
      sent.handled |= bit;
    }
    reaction.push_back(ack());
    return reaction;
  }

  void judge_one() {
    if (++result_.generated > options_.tried_max) {
      result_.limit_reached = true;
      return;
    }
    Method candidate = method_;
    while (!candidate.responder.empty() && candidate.responder.back().empty()) {
      candidate.responder.pop_back();
    }
    const Usage used = usage(candidate);
    const bool pointless =
        std::any_of(result_.methods.begin(), result_.methods.end(), [&](const Method& known) {
          const Usage other = usage(known);
          return other == used || beats(other, used);
        });
    if (pointless) return;
    candidate.primary = first_primary(candidate);
    candidate.later_any_size = !options_.later_small;
    candidate.name = "found";
    ++result_.judged;
    if (judge_(candidate, server_)) result_.methods.push_back(std::move(candidate));
  }

  static Primary first_primary(const Method& method) {
    for (const RequesterStep& step : method.requester) {
      const bool carries_first = step.kind == Kind::Post && brings_items(step.verb) &&
                                 !step.items.empty() && step.items.front() == 0;
      if (carries_first) return primary_of(step.verb);
    }
    return Primary::Write;
  }

  void drop_beaten() {
    std::vector<Method> kept;
    for (const Method& method : result_.methods) {
      const bool beaten =
          std::any_of(result_.methods.begin(), result_.methods.end(),
                      [&](const Method& other) { return beats(usage(other), usage(method)); });
      if (!beaten) kept.push_back(method);
    }
    result_.methods = std::move(kept);
  }

  const ServerProfile& server_;
  const SearchOptions& options_;
  const Judge& judge_;
  const std::size_t items_;
  bool flushes_ = false;
  bool replayable_ = false;
  Method method_;
  SearchResult result_;
};

}  // namespace

SearchResult search_methods(const ServerProfile& server, const SearchOptions& options,
                            const Judge& judge) {
  return Generator(server, options, judge).run();
}

std::string one_line(const Method& method) {
  std::string text;
  for (const RequesterStep& step : method.requester) {
    if (!text.empty()) text += "; ";
    text += step.kind == Kind::WaitCompletion
                ? "completion of " + perdure::describe(method.requester[step.of])
                : perdure::describe(step);
  }
  for (std::size_t message = 0; message < method.responder.size(); ++message) {
    text += fmt::format(" | {}:", message);
    for (const ResponderAction& action : method.responder[message]) {
      text +=
          (&action == &method.responder[message].front() ? " " : ", ") + perdure::describe(action);
    }
  }
  return text;
}

}  // namespace perdure::plan
