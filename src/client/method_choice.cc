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

/// Whether a later item travels by a posted WRITE. Where these keep no order, the word of an older
/// update in flight could be placed over that of a newer one.
bool writes_later_item(const Method& method) {
  return std::any_of(method.requester.begin(), method.requester.end(), [&](const auto& step) {
    const bool writes = step.kind == RequesterStep::Kind::Post &&
                        (step.verb == Verb::Write || step.verb == Verb::WriteImm);
    return writes && std::any_of(step.items.begin(), step.items.end(),
                                 [&](const Item item) { return method.shape.epoch_of(item) > 0; });
  });
}

/// Whether its end says no more than that WRITEs are in the RNIC, which may place them much later.
/// Where they keep no order, not even one that is posted after that goes over them.
bool ends_on_arrival(const Method& method) {
  const RequesterStep& last = method.requester.back();
  if (last.kind != RequesterStep::Kind::WaitCompletion) return false;
  const Verb verb = method.requester[last.of].verb;
  return verb == Verb::Write || verb == Verb::WriteImm;
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
    PERDURE_TRY(batches, by_size(has_word ? compound() : singleton(), false));
    PERDURE_TRY(places, by_size(singleton(), true));
    if (has_word && cpu_stores_last_item(batches.small) != cpu_stores_last_item(batches.large)) {
      batches.small = batches.large;
    }
    return MethodChoice{std::move(batches), std::move(places)};
  }

 private:
  Result<const Method*> cheapest(const plan::Planner& planner, std::uint64_t bytes,
                                 const std::optional<Primary>& primary, bool again) const {
    PERDURE_TRY(found, planner.rank(bytes, primary, costs_));
    const auto allowed = std::find_if(found.begin(), found.end(), [&](const auto& ranked) {
      const Method& method = ranked.known->method;
      const bool goes_back = !keeps_write_order(profile_) &&
                             (writes_later_item(method) || (again && ends_on_arrival(method)));
      return !goes_back && (options_.replay || !replays(method));
    });
    if (allowed != found.end()) return &allowed->known->method;
    return Error{ErrorCode::Unsupported,
                 "no method is left that neither replays messages nor may place an older word over "
                 "a newer one"};
  }

  /// `again`: updates of one place follow one another, each after the end of the one before.
  Result<SizedMethods> by_size(const UpdateShape& shape, bool again) const {
    plan::Update update;
    update.shape = shape;
    update.level = options_.level;
    update.message_bytes_max = options_.message_bytes_max - kMessageOverheadBytes;
    const plan::Planner planner(profile_, update);
    PERDURE_TRY(small, cheapest(planner, kSmallSampleBytes, options_.primary, again));
    // A record that does not fit into a message needs another way, whatever was forced.
    auto large = cheapest(planner, kBatchBytesMax, options_.primary, again);
    if (!large.ok() && options_.primary)
      large = cheapest(planner, kBatchBytesMax, std::nullopt, again);
    const bool only_messages = !large.ok() && large.code() == ErrorCode::Unsupported;
    if (!large.ok() && !only_messages) return large.error();
    SizedMethods sizes{*small, only_messages ? *small : **large, update.message_bytes_max};
    if (!only_messages && small == *large) return sizes;
    std::uint64_t above = kBatchBytesMax;  // the smallest size known to need another method
    std::uint64_t below = kSmallSampleBytes;
    while (above - below > kSmallSampleBytes) {
      const std::uint64_t middle = below + (above - below) / 2;
      const auto method = cheapest(planner, middle, options_.primary, again);
      const bool still_small = method.ok() && *method == small;
      (still_small ? below : above) = middle;
    }
    sizes.small_bytes_max = below;
    if (only_messages) sizes.bytes_max = below;
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
