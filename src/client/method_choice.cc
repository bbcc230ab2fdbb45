#include "client/method_choice.h"

#include <algorithm>
#include <array>

#include "core/message_bytes.h"
#include "core/try.h"
#include "plan/plan.h"

namespace perdure::client {
namespace {

constexpr std::uint64_t kSmallSampleBytes = 128;

/// Whether the responder's CPU stores the last item. Methods that differ in this must not follow
/// one another on one word: an older copy could be stored over a newer write.
bool cpu_stores_last_item(const Method& method) {
  const Item last = static_cast<Item>(method.shape.items() - 1);
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Copy && action.item == last) return true;
    }
  }
  return replays(method);
}

bool sends_messages(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(), [](const auto& step) {
    return step.kind == RequesterStep::Kind::Post &&
           (step.verb == Verb::Send || step.verb == Verb::WriteImm);
  });
}

class Chooser {
 public:
  Chooser(const ServerProfile& profile, const ChoiceOptions& options, const plan::CostModel& costs)
      : profile_(profile), options_(options), costs_(costs) {}

  Result<MethodChoice> choose() const {
    const bool has_word = options_.tail_word;
    PERDURE_TRY(batches, by_size(has_word ? compound() : singleton()));
    PERDURE_TRY(places, by_size(singleton()));
    if (has_word && cpu_stores_last_item(batches.small) != cpu_stores_last_item(batches.large)) {
      batches.small = batches.large;
    }
    return MethodChoice{std::move(batches), std::move(places)};
  }

 private:
  Result<Method> cheapest(const plan::Update& update) const {
    PERDURE_TRY(found, plan::candidates(profile_, update, costs_));
    const auto allowed = std::find_if(found.begin(), found.end(), [&](const auto& candidate) {
      return options_.replay || !replays(candidate.method);
    });
    if (allowed != found.end()) return std::move(allowed->method);
    return Error{ErrorCode::Unsupported, "only methods that replay messages are right here"};
  }

  Result<SizedMethods> by_size(const UpdateShape& shape) const {
    plan::Update update;
    update.shape = shape;
    update.primary = options_.primary;
    update.level = options_.level;
    update.message_bytes_max = options_.message_bytes_max - kMessageOverheadBytes;
    update.bytes = kSmallSampleBytes;
    PERDURE_TRY(small, cheapest(update));
    // A record that does not fit into a message needs another way, whatever was forced.
    plan::Update large_update = update;
    large_update.bytes = kBatchBytesMax;
    auto large = cheapest(large_update);
    if (!large.ok() && update.primary) {
      large_update.primary.reset();
      large = cheapest(large_update);
    }
    if (!large.ok()) return large.error();
    SizedMethods sizes{small, *large, update.message_bytes_max};
    if (small.name == large->name) return sizes;
    std::uint64_t above = kBatchBytesMax;  // the smallest size known to need another method
    std::uint64_t below = kSmallSampleBytes;
    while (above - below > kSmallSampleBytes) {
      update.bytes = below + (above - below) / 2;
      const auto method = cheapest(update);
      const bool still_small = method.ok() && method->name == small.name;
      (still_small ? below : above) = update.bytes;
    }
    sizes.small_bytes_max = below;
    return sizes;
  }

  const ServerProfile& profile_;
  const ChoiceOptions& options_;
  const plan::CostModel& costs_;
};

/// Whether the methods can do each other harm on one connection: see choose_methods.
bool clash(const MethodChoice& choice, bool tail_word) {
  const std::array all = {&choice.batches.small, &choice.batches.large, &choice.places.small,
                          &choice.places.large};
  const auto replayed = [](const Method* each) { return replays(*each); };
  if (std::none_of(all.begin(), all.end(), replayed)) return false;
  const bool others = std::any_of(all.begin(), all.end(), [](const Method* each) {
    return sends_messages(*each) && !replays(*each);
  });
  const bool late_word =
      tail_word && replays(choice.places.small) && !cpu_stores_last_item(choice.batches.large);
  return others || late_word;
}

}  // namespace

Result<MethodChoice> choose_methods(const ServerProfile& profile, const ChoiceOptions& options,
                                    const plan::CostModel& costs) {
  PERDURE_TRY(choice, Chooser(profile, options, costs).choose());
  if (!clash(choice, options.tail_word)) return choice;
  ChoiceOptions without = options;
  without.replay = false;
  return Chooser(profile, without, costs).choose();
}

}  // namespace perdure::client
