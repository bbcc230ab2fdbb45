// Puts the five parts together.
#include "check/check.h"

#include "check/explorer.h"
#include "check/program_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::check {
namespace {

bool names_unknown_item(const std::vector<Item>& items, std::size_t count) {
  return std::any_of(items.begin(), items.end(), [&](Item item) { return item >= count; });
}

}  // namespace

Report report_not_modelled(std::string reason) {
  Report report;
  report.verdict = Verdict::NotModelled;
  report.reason = std::move(reason);
  return report;
}

Report report_refused(const Method& method, const ServerProfile& profile) {
  return report_not_modelled(
      fmt::format("{} is refused: {}", method.name, why_refused(method, profile)));
}

std::optional<std::string> meaningless(const Method& method) {
  const std::size_t items = method.shape.items();
  std::size_t messages = 0;
  for (std::size_t index = 0; index < method.requester.size(); ++index) {
    const RequesterStep& step = method.requester[index];
    if (is_message(step)) ++messages;
    if (names_unknown_item(step.items, items) || names_unknown_item(step.flush, items) ||
        names_unknown_item(step.readable, items)) {
      return fmt::format("step {} names an item that the update does not have", index);
    }
    if (step.kind != RequesterStep::Kind::WaitCompletion) continue;
    if (step.of >= index || method.requester[step.of].kind != RequesterStep::Kind::Post) {
      return fmt::format("step {} waits for what was not posted before it", index);
    }
  }
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      if (action.item >= items) return "a reaction names an item that the update does not have";
    }
  }
  if (method.responder.size() > messages) return "there are more reactions than messages";
  return std::nullopt;
}

Report run_script(const Script& script, const ServerProfile& profile, const CompileOptions& options,
                  std::uint64_t states_max) {
  const auto program = compile(script, profile, options);
  if (!program) return report_not_modelled(program.error().message);

  const Exploration exploration = explore(*program, states_max);
  Report report;
  report.level = options.level;
  report.states = exploration.states;
  report.transitions = exploration.transitions;
  report.bounds.units_per_item = options.units_per_item;
  report.bounds.states_max = states_max;
  if (exploration.broken) {
    report.verdict = Verdict::Violated;
    report.property = exploration.broken;
    report.path = make_path(*program, exploration.actions);
    if (exploration.broken != Property::SometimesAcknowledged) {
      report.path.push_back(
          {Place::Domain, Place::Domain,
           "power fails; recovery finds " + after_power_loss(*program, exploration.actions)});
    }
  } else {
    report.verdict = exploration.limit_reached ? Verdict::LimitReached : Verdict::Holds;
  }
  return report;
}

InFlight in_flight(const CheckOptions& options) {
  return {options.updates_in_flight, options.between, options.connections, options.spread,
          options.gathered};
}

namespace {

/// Whether it matters that the responder may store what a later message brings before it flushes
/// what an earlier one did.
bool gathering_matters(const ServerProfile& profile, const CheckOptions& options) {
  const bool durable = options.level == Level::Durable || options.level == Level::Committed;
  const bool drains =
      profile.domain == PersistenceDomain::Dmp || profile.domain == PersistenceDomain::Page;
  return durable && drains && options.updates_in_flight > 1 && options.between == Between::Ordered;
}

Report explore_updates(const Method& method, const ServerProfile& profile, CheckOptions options) {
  const CompileOptions compiled{options.level, options.units_per_item, options.recovery};
  const Script script = make_script(method, in_flight(options));
  Report report = run_script(script, profile, compiled, options.states_max);
  if (!report.holds() || options.gathered || !gathering_matters(profile, options)) return report;
  options.gathered = true;
  const Script gathered = make_script(method, in_flight(options));
  if (gathered.reactions == script.reactions) return report;
  Report other = run_script(gathered, profile, compiled, options.states_max);
  other.states += report.states;
  other.transitions += report.transitions;
  return other;
}

}  // namespace

Report check(const Method& method, const ServerProfile& profile, const CheckOptions& options) {
  if (const auto reason = meaningless(method)) return report_not_modelled(*reason);
  if (method.shape.items() * options.updates_in_flight > kItemsInFlightMax) {
    return report_not_modelled("too many items in flight");
  }
  if (options.connections < 1 || options.connections > kConnectionsMax) {
    return report_not_modelled(
        fmt::format("one connection or {}, not {}", kConnectionsMax, options.connections));
  }
  Report report = explore_updates(method, profile, options);
  report.bounds.in_flight = in_flight(options);
  if (report.holds() && is_refused(method, profile)) return report_refused(method, profile);
  return report;
}

}  // namespace perdure::check
