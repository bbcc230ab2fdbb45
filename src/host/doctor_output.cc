// What the doctor says: text for a person, JSON for programs.
#include <fmt/format.h>

#include <algorithm>

#include "core/json.h"
#include "host/doctor.h"

namespace perdure::host {
namespace {

constexpr Verdict kVerdicts[] = {Verdict::Ok, Verdict::Advice, Verdict::Problem, Verdict::NotKnown,
                                 Verdict::NotApplicable};

constexpr int kIndent = 16;  // columns for the verdict

std::string section_of(const Check& check) { return "docs/hardware.md#" + check.name; }

std::size_t count_of(const std::vector<Check>& checks, Verdict verdict) {
  return static_cast<std::size_t>(
      std::count_if(checks.begin(), checks.end(),
                    [verdict](const Check& check) { return check.verdict == verdict; }));
}

std::string check_text(const Check& check) {
  std::string text =
      fmt::format("{:<{}}{}: {}\n", to_string(check.verdict), kIndent, check.name, check.finding);
  const auto add = [&text](std::string_view line) {
    text += fmt::format("{:<{}}{}\n", "", kIndent, line);
  };
  for (const std::string& line : check.evidence) add("  " + line);
  if (!check.advice.empty()) add("to do: " + check.advice);
  for (const std::string& command : check.commands) add("  $ " + command);
  if (!check.root_tells.empty()) add("root would tell: " + check.root_tells);
  if (!check.advice.empty()) add("see " + section_of(check));
  return text;
}

nlohmann::ordered_json check_json(const Check& check) {
  nlohmann::ordered_json json{{"name", check.name},
                              {"verdict", to_string(check.verdict)},
                              {"finding", check.finding},
                              {"evidence", check.evidence}};
  if (!check.advice.empty()) json["to_do"] = check.advice;
  if (!check.commands.empty()) json["commands"] = check.commands;
  if (!check.root_tells.empty()) json["root_would_tell"] = check.root_tells;
  json["section"] = section_of(check);
  return json;
}

}  // namespace

std::string doctor_text(const InspectedHost& inspected, const std::vector<Check>& checks) {
  std::string text = fmt::format("this machine as a peer with pools in {}\n", inspected.place.path);
  for (const Check& check : checks) text += check_text(check);
  std::vector<std::string> counts;
  for (const Verdict verdict : kVerdicts) {
    counts.push_back(fmt::format("{} {}", count_of(checks, verdict), to_string(verdict)));
  }
  return text + fmt::format("{} checks: {}\n", checks.size(), fmt::join(counts, ", "));
}

std::string doctor_json(const InspectedHost& inspected, const std::vector<Check>& checks) {
  nlohmann::ordered_json json{{"format", 1}, {"path", inspected.place.path}};
  for (const Verdict verdict : kVerdicts) {
    json["counts"][std::string(to_string(verdict))] = count_of(checks, verdict);
  }
  json["checks"] = nlohmann::ordered_json::array();
  for (const Check& check : checks) json["checks"].push_back(check_json(check));
  return json_text(json, 2) + "\n";
}

}  // namespace perdure::host
