// How a counterexample is shown: as a story, and as a sequence diagram.
#pragma once

#include "check/report.h"

#include "core/json.h"
#include "core/method.h"
#include "core/sequence_diagram.h"

#include <string>

namespace perdure::check {

/// The report as numbered sentences, ending in what recovery finds; or its summary, if it holds.
std::string story(const Method& method, const ServerProfile& profile, const Report& report);

/// The path of a violated report; without events if the method holds. Draw it with to_svg.
SequenceDiagram diagram(const Method& method, const ServerProfile& profile, const Report& report);

/// The report for programs: verdict, property, counts, bounds, path. One JSON object, with
/// "format": 1.
std::string to_json(const Method& method, const ServerProfile& profile, const Report& report);

/// What these have in common with those of sets: the events, one a line, drawn, or as an array.
std::string path_text(const Report& report);
SequenceDiagram path_diagram(std::string title, const Report& report);
nlohmann::ordered_json path_json(const Report& report);

}  // namespace perdure::check
