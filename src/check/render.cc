// Words, arrows and JSON for a Report.
#include "check/render.h"
#include "core/json.h"

#include <fmt/format.h>

#include <utility>

namespace perdure::check {
namespace {

std::string title(const Method& method, const ServerProfile& profile, const Report& report) {
  const std::string_view outcome =
      report.property ? to_string(*report.property) : to_string(report.verdict);
  return fmt::format("{} ({}) on {}: {}", method.name, to_string(method.shape), describe(profile),
                     report.property ? fmt::format("breaks {}", outcome) : std::string(outcome));
}

std::string where(const PathStep& step) {
  if (step.from == step.to) return std::string(to_string(step.from));
  return fmt::format("{} -> {}", to_string(step.from), to_string(step.to));
}

}  // namespace

std::string path_text(const Report& report) {
  std::string text;
  for (std::size_t index = 0; index < report.path.size(); ++index) {
    const PathStep& step = report.path[index];
    text += fmt::format("{:3}. {:36} {}\n", index + 1, where(step), step.text);
  }
  return text;
}

nlohmann::ordered_json path_json(const Report& report) {
  auto json = nlohmann::ordered_json::array();
  for (const PathStep& step : report.path) {
    json.push_back(
        {{"from", to_string(step.from)}, {"to", to_string(step.to)}, {"text", step.text}});
  }
  return json;
}

std::string story(const Method& method, const ServerProfile& profile, const Report& report) {
  return title(method, profile, report) + "\n" + path_text(report) + summary(report) + "\n";
}

SequenceDiagram diagram(const Method& method, const ServerProfile& profile, const Report& report) {
  return path_diagram(title(method, profile, report), report);
}

SequenceDiagram path_diagram(std::string title, const Report& report) {
  SequenceDiagram drawing;
  drawing.title = std::move(title);
  for (const Place place :
       {Place::Requester, Place::Rnic, Place::Visible, Place::Domain, Place::ResponderCpu}) {
    drawing.lanes.emplace_back(to_string(place));
  }
  for (const PathStep& step : report.path) {
    const bool last = &step == &report.path.back();
    drawing.events.push_back({static_cast<std::size_t>(step.from),
                              static_cast<std::size_t>(step.to), step.text,
                              last && report.verdict == Verdict::Violated});
  }
  return drawing;
}

std::string to_json(const Method& method, const ServerProfile& profile, const Report& report) {
  nlohmann::ordered_json json;
  json["format"] = 1;
  json["method"] = method.name;
  json["update"] = to_string(method.shape);
  json["server"] = describe(profile);
  json["verdict"] = to_string(report.verdict);
  if (report.property) json["property"] = to_string(*report.property);
  if (!report.reason.empty()) json["reason"] = report.reason;
  json["states"] = report.states;
  json["transitions"] = report.transitions;
  json["level"] = to_string(report.level);
  json["bounds"] = {{"units_per_item", report.bounds.units_per_item},
                    {"updates_in_flight", report.bounds.in_flight.updates},
                    {"between_updates", to_string(report.bounds.in_flight.between)},
                    {"states_max", report.bounds.states_max},
                    {"connections", report.bounds.in_flight.connections},
                    {"spread", to_string(report.bounds.in_flight.spread)}};
  json["path"] = path_json(report);
  return json_text(json, 2) + "\n";
}

}  // namespace perdure::check
