#include "plan/method_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/message_bytes.h"
#include "core/try.h"
#include "plan/plan.h"

namespace perdure::plan {
namespace {

constexpr std::uint64_t kSmallSampleBytes = 128;

/// A message that survives because an SFLUSH has looked for it. That flushes this message alone:
/// of an empty one before it (of a READ, behind a request) a power failure may leave nothing, and
/// recovery stops at the first message that is not there.
bool survives_by_lookup(const Method& method) {
  return replays(method) &&
         std::any_of(method.requester.begin(), method.requester.end(), [](const auto& step) {
           return step.kind == RequesterStep::Kind::Post && step.verb == Verb::SendFlush;
         });
}

/// What a message has room for; 0: not even for its head.
std::uint64_t message_room(const SetOptions& options) {
  return options.message_bytes_max -
         std::min<std::uint64_t>(options.message_bytes_max, kMessageOverheadBytes);
}

class Chooser {
 public:
  Chooser(const ServerProfile& profile, const SetOptions& options, const CostModel& costs)
      : profile_(profile), options_(options), costs_(costs) {}

  Result<MethodSet> choose() const {
    PERDURE_TRY(batches,
                by_size(options_.tail_word ? compound() : singleton(), Reuse::AfterAnother));
    PERDURE_TRY(places, by_size(singleton(), Reuse::AfterItsEnd));
    return MethodSet{std::move(batches), std::move(places)};
  }

 private:
  /// The cheapest whose updates can follow one another.
  Result<const Method*> cheapest(const Planner& planner, std::uint64_t bytes,
                                 const std::optional<Primary>& primary, Reuse reuse) const {
    PERDURE_TRY(found, planner.rank(bytes, primary, costs_));
    const auto allowed = std::find_if(found.begin(), found.end(), [&](const auto& ranked) {
      const Method& method = ranked.known->method;
      if (!options_.replay && replays(method)) return false;
      if (survives_by_lookup(method)) return false;
      if (!options_.immediates && acts_on_immediate(method)) return false;
      return may_share({{method, reuse, false}}, profile_).ok();
    });
    if (allowed != found.end()) return &allowed->known->method;
    return Error{
        ErrorCode::Unsupported,
        options_.immediates
            ? "no method is left that neither replays messages nor may place an older "
              "word over a newer one"
            : "no method is left without WRITE_WITH_IMM, and an immediate can not name "
              "every place of a pool as large as this one; let another verb carry the data"};
  }

  Result<SizedMethods> by_size(const UpdateShape& shape, Reuse reuse) const {
    Update update;
    update.shape = shape;
    update.level = options_.level;
    update.message_bytes_max = message_room(options_);
    const Planner planner(profile_, update);
    PERDURE_TRY(small, cheapest(planner, kSmallSampleBytes, options_.primary, reuse));
    // A record that does not fit into a message needs another way, whatever was forced.
    auto large = cheapest(planner, kBatchBytesMax, options_.primary, reuse);
    if (!large.ok() && options_.primary)
      large = cheapest(planner, kBatchBytesMax, std::nullopt, reuse);
    const bool only_messages = !large.ok() && large.code() == ErrorCode::Unsupported;
    if (!large.ok() && !only_messages) return large.error();
    SizedMethods sizes{*small, only_messages ? *small : **large, update.message_bytes_max};
    if (!only_messages && small == *large) return sizes;
    std::uint64_t above = kBatchBytesMax;  // the smallest size known to need another method
    std::uint64_t below = kSmallSampleBytes;
    while (above - below > kSmallSampleBytes) {
      const std::uint64_t middle = below + (above - below) / 2;
      const auto method = cheapest(planner, middle, options_.primary, reuse);
      const bool still_small = method.ok() && *method == small;
      (still_small ? below : above) = middle;
    }
    sizes.small_bytes_max = below;
    if (only_messages) sizes.bytes_max = below;
    return sizes;
  }

  const ServerProfile& profile_;
  const SetOptions& options_;
  const CostModel& costs_;
};

/// The same with messages for everything, if SEND is forced and they are replayed: what is larger
/// goes in pieces.
MethodSet replayed_pieces(MethodSet set, const SetOptions& options) {
  const bool replayed = replays(set.batches.small) && replays(set.places.small);
  if (!replayed || options.primary != Primary::Send) return set;
  for (SizedMethods* sizes : {&set.batches, &set.places}) {
    sizes->large = sizes->small;
    sizes->small_bytes_max = sizes->bytes_max = message_room(options);
  }
  return set;
}

std::string sizes_text(const SizedMethods& sizes) {
  if (sizes.bytes_max != std::numeric_limits<std::uint64_t>::max()) {
    return fmt::format("{}, {} B at a time", sizes.small.name, sizes.bytes_max);
  }
  if (sizes.small == sizes.large) return sizes.small.name;
  return fmt::format("{} up to {} B, {} above", sizes.small.name, sizes.small_bytes_max,
                     sizes.large.name);
}

}  // namespace

Result<MethodSet> choose_methods(const ServerProfile& profile, const SetOptions& options,
                                 const CostModel& costs) {
  std::optional<Error> refused;
  for (const bool replay : {true, false}) {
    if (replay && !options.replay) continue;
    SetOptions tried = options;
    tried.replay = replay;
    PERDURE_TRY(set, Chooser(profile, tried, costs).choose());
    if (may_share(set, profile).ok()) return set;
    if (auto pieces = replayed_pieces(set, tried); may_share(pieces, profile).ok()) return pieces;
    set.batches.small = set.batches.large;
    const auto allowed = may_share(set, profile);
    if (allowed.ok()) return set;
    refused = allowed.error();
    // What may follow itself at a place may follow itself in a ring, at other costs.
    if (!options.tail_word) {
      set.batches = set.places;
      if (may_share(set, profile).ok()) return set;
    }
  }
  return *refused;
}

std::string to_text(const MethodSet& set) {
  return fmt::format("updates: {}\nplaces: {}\n", sizes_text(set.batches), sizes_text(set.places));
}

}  // namespace perdure::plan
