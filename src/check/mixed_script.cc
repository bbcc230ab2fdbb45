// Lays out updates of different methods the way src/persist posts and handles them.
#include "check/script.h"

#include <algorithm>

namespace perdure::check {
namespace {

using Kind = RequesterStep::Kind;

/// One past the last post of a method: what follows holds no later update back.
std::size_t posts_end(const Method& method) {
  std::size_t end = 0;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    if (method.requester[index].kind == Kind::Post) end = index + 1;
  }
  return end;
}

/// What the responder does with a message that recovery could replay, where the method says
/// nothing: item by item, it stores and flushes what it carries.
std::vector<ResponderAction> applied(const RequesterStep& message) {
  std::vector<ResponderAction> reaction;
  for (const Item item : message.items) {
    reaction.push_back({ResponderAction::Kind::Copy, item});
    reaction.push_back({ResponderAction::Kind::Flush, item});
  }
  return reaction;
}

class Mixture {
 public:
  explicit Mixture(const std::vector<MixedUpdate>& updates) : updates_(updates) {
    script_.mixed = true;
  }

  Script run() {
    for (const MixedUpdate& update : updates_) {
      first_item_.push_back(script_.epoch_of_item.size());
      first_epoch_.push_back(script_.dependents.size());
      items(update);
    }
    for (std::size_t index = 0; index < updates_.size(); ++index) {
      vouch(index);
      post(index);
    }
    return std::move(script_);
  }

 private:
  void items(const MixedUpdate& update) {
    const UpdateShape& shape = update.method.shape;
    const std::size_t epochs = shape.items_per_epoch.size();
    const std::size_t first = script_.dependents.size();
    for (std::size_t item = 0; item < shape.items(); ++item) {
      const std::size_t epoch = shape.epoch_of(static_cast<Item>(item));
      script_.epoch_of_item.push_back(static_cast<std::uint8_t>(first + epoch));
      script_.small_item.push_back(!update.method.later_any_size && epoch > 0);
      script_.place_of_item.push_back(update.places[item]);
    }
    for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
      std::vector<std::size_t> later;
      for (std::size_t other = epoch + 1; other < epochs; ++other) later.push_back(first + other);
      script_.dependents.push_back(std::move(later));
    }
  }

  /// Later words speak for the update, but for its own word, which they take the place of.
  void vouch(std::size_t index) {
    if (!updates_[index].vouched) return;
    const std::size_t epochs = updates_[index].method.shape.items_per_epoch.size();
    const std::size_t spoken_for = updates_[index].has_word ? epochs - 1 : epochs;
    for (std::size_t later = index + 1; later < updates_.size(); ++later) {
      if (!updates_[later].has_word) continue;
      const std::size_t word =
          first_epoch_[later] + updates_[later].method.shape.items_per_epoch.size() - 1;
      for (std::size_t epoch = 0; epoch < spoken_for; ++epoch) {
        script_.dependents[first_epoch_[index] + epoch].push_back(word);
      }
    }
  }

  void post(std::size_t index) {
    const MixedUpdate& update = updates_[index];
    for (std::size_t before = 0; before < update.after; ++before) {
      for (const RequesterStep& wait : script_.promises[before].waits) add(wait);
    }
    placed_.clear();
    acknowledged_.reset();
    messages_ = 0;
    const std::size_t end = posts_end(update.method);
    for (std::size_t step = 0; step < end; ++step) place(index, update.method.requester[step]);
    Promise promise;
    promise.step = script_.steps.size();
    for (std::size_t step = end; step < update.method.requester.size(); ++step) {
      promise.waits.push_back(wait(update.method.requester[step]));
    }
    for (std::size_t item = 0; item < first_item_[index] + update.method.shape.items(); ++item) {
      promise.items.push_back(static_cast<Item>(item));
    }
    script_.promises.push_back(std::move(promise));
  }

  void add(RequesterStep step) {
    script_.steps.push_back(std::move(step));
    script_.connection_of_step.push_back(0);
  }

  /// A wait, for a step of the script instead of one of the method. An acknowledgement is that of
  /// the last message before it that asks for one.
  RequesterStep wait(RequesterStep step) const {
    if (step.kind == Kind::WaitCompletion) step.of = placed_[step.of];
    if (step.kind == Kind::WaitAck) step.of = acknowledged_.value_or(script_.steps.size());
    return step;
  }

  void place(std::size_t index, RequesterStep step) {
    placed_.push_back(script_.steps.size());
    if (step.kind != Kind::Post) return add(wait(std::move(step)));
    const Method& method = updates_[index].method;
    const std::size_t shift = first_item_[index];
    for (Item& item : step.items) item = static_cast<Item>(item + shift);
    for (Item& item : step.flush) item = static_cast<Item>(item + shift);
    for (Item& item : step.readable) item = static_cast<Item>(item + shift);
    if (is_message(step)) {
      std::vector<ResponderAction> reaction;
      if (messages_ < method.responder.size()) reaction = method.responder[messages_];
      for (ResponderAction& action : reaction) action.item = static_cast<Item>(action.item + shift);
      if (reaction.empty() && step.replay) reaction = applied(step);
      const bool asks = std::any_of(reaction.begin(), reaction.end(), [](const auto& action) {
        return action.kind == ResponderAction::Kind::Ack;
      });
      if (asks) acknowledged_ = script_.steps.size();
      script_.reactions.push_back(std::move(reaction));
      ++messages_;
    }
    add(std::move(step));
  }

  const std::vector<MixedUpdate>& updates_;
  Script script_;
  std::vector<std::size_t> first_item_;
  std::vector<std::size_t> first_epoch_;
  // Of the update at work:
  std::vector<std::size_t> placed_;  // method step -> script step
  std::optional<std::size_t> acknowledged_;
  std::size_t messages_ = 0;
};

}  // namespace

Script make_script(const std::vector<MixedUpdate>& updates) { return Mixture(updates).run(); }

}  // namespace perdure::check
