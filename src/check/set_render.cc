// Words and JSON for a SetReport.
#include "check/render.h"
#include "check/set_check.h"
#include "core/counted.h"
#include "core/json.h"

#include <fmt/format.h>

namespace perdure::check {

std::string summary(const SetReport& report) {
  const std::string bounds = fmt::format(
      "Bounds: level {}, up to {} updates, {} per item (one where a place is written again), one "
      "connection; updates posted as the requester posts them, one word for all that have one, "
      "places written again as far as the set allows; power failing in any state and again in "
      "recovery.\nLeft out: lost connections, corruption of what was kept, a full receive queue, "
      "flushes that the responder gathers from several messages.",
      to_string(report.options.level), report.options.updates_max,
      counted(report.options.units_per_item, "unit"));
  const std::string counts =
      fmt::format("{}, {}, {} transitions", counted(report.sequences, "sequence"),
                  counted(report.states, "state"), report.transitions);
  if (report.holds()) return fmt::format("holds: all properties in all of {}.\n{}", counts, bounds);
  std::string why(to_string(report.verdict));
  if (report.report.property) why = fmt::format("violated: {}", to_string(*report.report.property));
  if (!report.report.reason.empty()) why += ": " + report.report.reason;
  return fmt::format("{}, after {} ({}).\n{}", why, counted(report.report.path.size(), "event"),
                     counts, bounds);
}

std::string story(const ServerProfile& profile, const SetReport& report) {
  std::string text;
  if (report.failed) {
    text = fmt::format("on {}: {}\n", describe(profile), report.failed->text);
    text += path_text(report.report);
  }
  return text + summary(report) + "\n";
}

SequenceDiagram diagram(const ServerProfile& profile, const SetReport& report) {
  const Report& of = report.report;
  const std::string outcome = of.property ? fmt::format("breaks {}", to_string(*of.property))
                                          : std::string(to_string(report.verdict));
  const std::string failed = report.failed ? report.failed->text + " " : "";
  return path_diagram(fmt::format("{}on {}: {}", failed, describe(profile), outcome), of);
}

std::string to_json(const std::vector<SetMember>& members, const ServerProfile& profile,
                    const SetReport& report) {
  nlohmann::ordered_json json;
  json["format"] = 1;
  json["methods"] = nlohmann::ordered_json::array();
  for (const SetMember& member : members) {
    json["methods"].push_back({{"method", member.method.name},
                               {"update", to_string(member.method.shape)},
                               {"written_again", to_string(member.reuse)},
                               {"vouched", member.vouched}});
  }
  json["server"] = describe(profile);
  json["verdict"] = to_string(report.verdict);
  if (report.report.property) json["property"] = to_string(*report.report.property);
  if (!report.report.reason.empty()) json["reason"] = report.report.reason;
  if (report.failed) json["sequence"] = report.failed->text;
  json["sequences"] = report.sequences;
  json["states"] = report.states;
  json["transitions"] = report.transitions;
  json["level"] = to_string(report.options.level);
  json["bounds"] = {{"updates_max", report.options.updates_max},
                    {"units_per_item", report.options.units_per_item},
                    {"states_max", report.options.states_max}};
  json["path"] = path_json(report.report);
  return json_text(json, 2) + "\n";
}

}  // namespace perdure::check
