// How methods and choices are shown: tables and reasons for a terminal, JSON for other tools (the
// format is docs/plan.schema.json), sequence diagrams, and cost over size as bars of text or
// as curves to draw.
#pragma once

#include "core/sequence_diagram.h"
#include "plan/paper.h"
#include "plan/plan.h"

#include <string>
#include <vector>

namespace perdure::plan {

enum class Source {
  Paper,  // the tables as published, superfluous steps included
  Best,   // what Perdure runs: the cheapest right method for small records by default costs
};

/// Errors: InvalidArgument, naming the accepted words ("paper", "best").
Result<Source> parse_source(std::string_view word);

/// Every scenario of the tables on each transport; with Best also the ones of domain page: by SEND
/// only, where pages that an RNIC writes stay clean, and by all operations where they do not.
/// Published methods are as published also where nothing is known of the order of WRITEs.
std::vector<Scenario> all_scenarios(Source source, const std::vector<Transport>& transports,
                                    WriteOrder order = WriteOrder::Ordered);

/// {"format": 2, "methods": [...]}, one method per line, in the order given; ends in a newline.
std::string to_json(const std::vector<Scenario>& scenarios);

/// One of those methods, on one line. Its name is not in it.
std::string to_json(const ServerProfile& profile, const Method& method);

/// One table per update shape: a row per responder, a column per operation, "name (round trips)".
std::string to_table(const std::vector<Scenario>& scenarios);

/// The method step by step, both sides, for a person.
std::string to_text(const Method& method);

/// The method as a sequence diagram: requester, responder's RNIC, responder's processor.
/// Draw it with to_text or to_svg.
SequenceDiagram diagram(const Method& method, const ServerProfile& profile);

/// What was chosen and why: candidates with cost, round trips and reason, the sizes at which the
/// choice changes, and where the costs are from. Errors: as for candidates.
Result<std::string> explain(const ServerProfile& server, const Update& update,
                            const CostModel& costs);

/// The costs themselves, one per line.
std::string to_text(const CostModel& costs);

/// The cheapest method's cost over the size of a record, a bar for each size (logarithmic) and a
/// line wherever the choice changes, for a terminal. Errors: as for candidates.
Result<std::string> cost_plot_text(const ServerProfile& server, const Update& update,
                                   const CostModel& costs, std::uint64_t bytes_max);

/// What one method costs, at sizes that double.
struct CostCurve {
  struct Point {
    std::uint64_t bytes = 0;
    double cost_ns = 0;
  };
  std::string method;
  std::vector<Point> points;
};

/// Cost over the size of a record, of every candidate, and where the choice changes.
struct CostCurves {
  std::vector<CostCurve> methods;  // by name
  std::vector<Crossover> changes;
};

/// From 1 byte to `bytes_max`. Errors: as for candidates.
Result<CostCurves> cost_curves(const ServerProfile& server, const Update& update,
                               const CostModel& costs, std::uint64_t bytes_max);

}  // namespace perdure::plan
