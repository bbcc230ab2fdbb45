// The search of src/plan with the judge of src/check: each refuted sequence keeps its verdict.
#include "plan_search.h"

#include "check/check.h"
#include "core/counted.h"
#include "plan/cost.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::app {
namespace {

constexpr std::size_t kSearchedItemsMax = 3;

struct Refuted {
  Method method;
  check::Report report;
};

bool takes_one(const Method& method, bool one_sided) {
  const plan::Usage usage = plan::usage(method);
  return usage.round_trips == 1 && (!one_sided || usage.responder_wakes == 0);
}

std::string found_text(const std::vector<Method>& methods) {
  std::string text = "right, and beaten by none:\n";
  if (methods.empty()) text += "  none\n";
  for (const Method& method : methods) {
    const plan::Usage usage = plan::usage(method);
    text += fmt::format("  {}\n      round trips {}, items copied {}, wake-ups {}, buffers {}\n",
                        plan::one_line(method), usage.round_trips, usage.copied_items,
                        usage.responder_wakes, usage.receive_buffers);
  }
  return text;
}

std::string_view broken_property(const check::Report& report) {
  return report.property ? check::to_string(*report.property) : "could not be explored whole";
}

/// Whether one round trip is enough; if not, what is wrong with each sequence that takes one.
std::string one_round_trip_text(const plan::SearchResult& result,
                                const std::vector<Refuted>& refuted, bool one_sided) {
  const std::string what =
      one_sided ? "one round trip without the responder's processor" : "one round trip";
  const auto takes = [&](const Method& method) { return takes_one(method, one_sided); };
  const auto possible = std::find_if(result.methods.begin(), result.methods.end(), takes);
  if (possible != result.methods.end()) {
    return fmt::format("\n{}: {}\n", what, plan::one_line(*possible));
  }
  std::string lines;
  std::size_t count = 0;
  for (const auto& [method, report] : refuted) {
    if (!takes(method)) continue;
    ++count;
    lines += fmt::format("  {}\n      {} after {} ({})\n", plan::one_line(method),
                         broken_property(report), counted(report.path.size(), "event"),
                         counted(report.states, "state"));
  }
  return fmt::format("\n{}: impossible among those. Each of the {} that take it is wrong:\n{}",
                     what, count, lines);
}

}  // namespace

Result<std::string> search_text(const ServerProfile& server, const plan::SearchOptions& options) {
  if (options.shape.items() == 0 || options.shape.items() > kSearchedItemsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--search takes updates of 1 to {} items, not {}: the sequences of "
                             "more are too many. Leave out --search to see the known methods",
                             kSearchedItemsMax, options.shape.items())};
  }
  std::vector<Refuted> refuted;
  const plan::Judge judge = [&](const Method& method, const ServerProfile& profile) {
    check::Report report = check::check(method, profile);
    if (report.holds()) return true;
    refuted.push_back({method, std::move(report)});
    return false;
  };
  const plan::SearchResult result = plan::search_methods(server, options, judge);
  if (result.limit_reached) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("there are more than {} sequences: name the operation that carries the "
                    "data with --primary",
                    options.tried_max)};
  }
  const bool has_later = options.shape.items_per_epoch.size() > 1;
  const std::string_view later = !has_later            ? ""
                                 : options.later_small ? ", later items of at most 8 bytes"
                                                       : ", later items of any size";
  return fmt::format(
             "responder: {}\nupdate: {}{}, level durable\n"
             "sequences of up to {} posts: {}; checked: {} (the others use no less than one that "
             "is right); wrong: {}\n\n",
             describe(server), to_string(options.shape), later, options.posts_max, result.generated,
             result.judged, refuted.size()) +
         found_text(result.methods) + one_round_trip_text(result, refuted, false) +
         one_round_trip_text(result, refuted, true);
}

}  // namespace perdure::app
