// Filters what the catalog knows by the update, prices it, sorts it.
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/message_bytes.h"
#include "core/try.h"
#include "plan/catalog.h"

namespace perdure::plan {
namespace {

constexpr std::uint64_t kAtomicBytes = 8;

Result<void> check_update(const Update& update) {
  const std::size_t items = update.shape.items();
  if (items == 0 || items > kItemsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("an update has 1 to {} items, not {}", kItemsMax, items)};
  }
  const auto& epochs = update.shape.items_per_epoch;
  if (std::find(epochs.begin(), epochs.end(), 0) != epochs.end()) {
    return Error{ErrorCode::InvalidArgument, "an epoch of an update has no items"};
  }
  const bool empty = update.bytes == 0 || (epochs.size() > 1 && update.later_bytes == 0);
  if (empty) return Error{ErrorCode::InvalidArgument, "an item of an update has no bytes"};
  return {};
}

/// Whether every message of the method fits into a receive buffer.
bool messages_fit(const Method& method, const Update& update, QpType type) {
  const std::uint64_t datagram =
      type == QpType::Ud ? kDatagramBytesMax : std::numeric_limits<std::uint64_t>::max();
  return std::all_of(
      method.requester.begin(), method.requester.end(), [&](const RequesterStep& step) {
        if (step.kind != RequesterStep::Kind::Post || !sends_items(step.verb)) return true;
        if (step.items.empty()) return true;
        std::uint64_t bytes = kMessageOverheadBytes;
        for (const Item item : step.items) {
          bytes += method.shape.epoch_of(item) == 0 ? update.bytes : update.later_bytes;
        }
        return bytes <= std::min(update.message_bytes_max, datagram);
      });
}

Error nothing_is_durable(const ServerProfile& server) {
  return Error{ErrorCode::Unsupported,
               fmt::format("nothing is durable on this responder ({}): its memory is volatile. "
                           "Declare a battery (domain wsp, mhp or dmp) if it has one, put the pool "
                           "on a file or a DAX device, or ask for level 'visible'",
                           describe(server))};
}

/// Over queue pairs that are not reliable: what they are short of.
Error nothing_survives_loss(const ServerProfile& server, const Update& update) {
  const std::string_view type = to_string(server.qp_type);
  if (server.qp_type == QpType::Ud && update.message_bytes_max >= kDatagramBytesMax) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("no method makes a {} update of {} bytes {} over ud: it has only SENDs, "
                    "of at most {} bytes, {} of which are the message's own; allow SEND, "
                    "take smaller items, or rc",
                    to_string(update.shape), update.bytes, to_string(update.level),
                    kDatagramBytesMax, kMessageOverheadBytes)};
  }
  return Error{
      ErrorCode::Unsupported,
      fmt::format("no method makes a {} update of {} bytes {} over {} with receive buffers of {} "
                  "bytes: what is posted may be lost, so one message has to bring all that it is "
                  "answered for (a WRITE may be missing in front of it, a WRITE_WITH_IMM has no "
                  "number), and there are no READs, FLUSHes or atomics; allow SEND, larger receive "
                  "buffers, or rc",
                  to_string(update.shape), update.bytes, to_string(update.level), type,
                  update.message_bytes_max)};
}

Error nothing_is_left(const ServerProfile& server, const Update& update) {
  if (server.qp_type != QpType::Rc) return nothing_survives_loss(server, update);
  const std::string by =
      update.primary ? fmt::format(" by {}", to_string(*update.primary)) : std::string();
  return Error{ErrorCode::Unsupported,
               fmt::format("no method makes a {} update of {} bytes {}{} on this responder ({}) "
                           "with receive buffers of {} bytes: allow another operation, smaller "
                           "items or larger receive buffers",
                           to_string(update.shape), update.bytes, to_string(update.level), by,
                           describe(server), update.message_bytes_max)};
}

/// Two timings of one connection differ by as much; see docs/benchmarks.md.
constexpr double kMeasuredNoise = 0.05;

std::ptrdiff_t posts(const Planner::Ranked& ranked) {
  const auto& steps = ranked.known->method.requester;
  return std::count_if(steps.begin(), steps.end(), [](const RequesterStep& step) {
    return step.kind == RequesterStep::Kind::Post;
  });
}

bool cheaper(const Planner::Ranked& one, const Planner::Ranked& other) {
  if (one.cost_ns != other.cost_ns) return one.cost_ns < other.cost_ns;
  if (one.usage.receive_buffers != other.usage.receive_buffers) {
    return one.usage.receive_buffers < other.usage.receive_buffers;
  }
  return one.known->method.name < other.known->method.name;
}

}  // namespace

Planner::Planner(const ServerProfile& server, const Update& update)
    : server_(server),
      update_(update),
      known_(check_update(update).ok()
                 ? known_methods(server,
                                 {update.shape, update.level, update.later_bytes <= kAtomicBytes,
                                  update.polled, update.responder_posts})
                 : std::vector<Known>{}) {}

Result<std::vector<Planner::Ranked>> Planner::rank(std::uint64_t bytes,
                                                   const std::optional<Primary>& primary,
                                                   const CostModel& costs) const {
  Update update = update_;
  update.bytes = bytes;
  update.primary = primary;
  PERDURE_TRY_VOID(check_update(update));
  if (!has_qp_type(server_.transport, server_.qp_type)) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} has no {} queue pairs: only infiniband and roce have them",
                             to_string(server_.transport), to_string(server_.qp_type))};
  }
  if (known_.empty()) return nothing_is_durable(server_);
  std::vector<Ranked> found;
  for (const Known& each : known_) {
    if (update.primary && each.method.primary != *update.primary) continue;
    if (!messages_fit(each.method, update, server_.qp_type)) continue;
    const bool asked = update.primary == Primary::WriteImm || update.immediate_names_place;
    if (acts_on_immediate(each.method) && !asked) continue;
    const double cost =
        cost_ns(each.method, server_.domain, update.bytes, update.later_bytes, costs);
    found.push_back({&each, cost, usage(each.method)});
  }
  if (found.empty()) return nothing_is_left(server_, update);
  std::sort(found.begin(), found.end(), cheaper);
  if (costs.measured) {
    const double same = found.front().cost_ns * (1 + kMeasuredNoise);
    const auto dearer = std::find_if(found.begin(), found.end(),
                                     [&](const Ranked& ranked) { return ranked.cost_ns > same; });
    std::stable_sort(found.begin(), dearer, [](const Ranked& one, const Ranked& other) {
      return posts(one) < posts(other);
    });
  }
  return found;
}

Result<std::vector<Candidate>> candidates(const ServerProfile& server, const Update& update,
                                          const CostModel& costs) {
  const Planner planner(server, update);
  PERDURE_TRY(ranked, planner.rank(update.bytes, update.primary, costs));
  std::vector<Candidate> found;
  for (const Planner::Ranked& each : ranked) {
    found.push_back({each.known->method, each.cost_ns, each.usage, each.known->reason});
  }
  return found;
}

Result<std::vector<Candidate>> candidates(const ServerProfile& server, const Update& update) {
  return candidates(server, update, default_costs(server.transport));
}

Result<Method> plan(const ServerProfile& server, const Update& update, const CostModel& costs) {
  PERDURE_TRY(found, candidates(server, update, costs));
  return std::move(found.front().method);
}

Result<Method> plan(const ServerProfile& server, const Update& update) {
  return plan(server, update, default_costs(server.transport));
}

Result<std::vector<Crossover>> crossovers(const ServerProfile& server, const Update& update,
                                          const CostModel& costs, std::uint64_t bytes_max) {
  const auto cheapest = [&](std::uint64_t bytes) {
    Update sized = update;
    sized.bytes = bytes;
    return candidates(server, sized, costs);
  };
  PERDURE_TRY(first, cheapest(1));
  std::vector<Crossover> found{{1, first.front().method, first.front().cost_ns}};
  // Costs are straight lines in the size, so between two powers of two with different winners a
  // bisection finds where the winner of the lower end stops winning.
  std::uint64_t low = 1;
  while (low < bytes_max) {
    std::uint64_t high = low > bytes_max / 2 ? bytes_max : low * 2;
    const auto at_high = cheapest(high);
    if (!at_high.ok()) break;
    if (at_high->front().method.name == found.back().method.name) {
      low = high;
      continue;
    }
    while (high - low > 1) {
      const std::uint64_t middle = low + (high - low) / 2;
      PERDURE_TRY(at_middle, cheapest(middle));
      (at_middle.front().method.name == found.back().method.name ? low : high) = middle;
    }
    PERDURE_TRY(winner, cheapest(high));
    found.push_back({high, winner.front().method, winner.front().cost_ns});
    low = high;
  }
  return found;
}

}  // namespace perdure::plan
