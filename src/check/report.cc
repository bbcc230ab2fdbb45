// The words of a report.
#include "check/report.h"
#include "core/counted.h"

#include <fmt/format.h>

namespace perdure::check {

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Holds: return "holds";
    case Verdict::Violated: return "violated";
    case Verdict::LimitReached: return "limit-reached";
    case Verdict::NotModelled: return "not-modelled";
  }
  return "unknown";
}

std::string summary(const Report& report) {
  std::string text;
  switch (report.verdict) {
    case Verdict::Holds:
      text = fmt::format("holds: all properties in all {}", counted(report.states, "state"));
      break;
    case Verdict::Violated:
      text = fmt::format("violated: {}, after {} ({} explored)", to_string(report.property.value()),
                         counted(report.path.size(), "event"), counted(report.states, "state"));
      break;
    case Verdict::LimitReached:
      text = fmt::format("limit reached: nothing broken in the first {} states, no proof",
                         report.states);
      break;
    case Verdict::NotModelled: return fmt::format("not modelled: {}", report.reason);
  }
  const InFlight& in_flight = report.bounds.in_flight;
  const bool several = in_flight.updates > 1;
  const bool spread = in_flight.connections > 1;
  text += fmt::format(
      ", {} transitions.\nBounds: level {}, {} units per item, {} update{} in flight{}, {} "
      "connection{}, power failing in any state and again in recovery.\nLeft out: lost connections "
      "(an operation either arrives or power fails), "
      "corruption of what was kept, a full receive queue.",
      report.transitions, to_string(report.level), report.bounds.units_per_item, in_flight.updates,
      several ? "s" : "", several ? fmt::format(" ({})", to_string(in_flight.between)) : "",
      spread ? "two" : "one",
      spread ? fmt::format("s (successive {} alternate)", to_string(in_flight.spread)) : "");
  return text;
}

}  // namespace perdure::check
