// Results of `perdure bench rpc` as text, JSON and charts.
#include "bench/rpc_figures.h"
#include "core/json.h"
#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::bench {
namespace {

std::string label_of(const RpcFigureResult& result) {
  return std::string(to_string(origin_of(result.fabric)));
}

const RpcRow* find_row(const RpcFigureResult& result, const std::string& cell,
                       const rpc::models::Design* design, RpcForm form) {
  for (const RpcRow& row : result.rows) {
    if (row.cell == cell && row.point.design == design && row.point.form == form &&
        row.confounder.empty()) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<const rpc::models::Design*> designs_in(const RpcFigureResult& result) {
  std::vector<const rpc::models::Design*> designs;
  for (const RpcRow& row : result.rows) {
    if (std::find(designs.begin(), designs.end(), row.point.design) == designs.end()) {
      designs.push_back(row.point.design);
    }
  }
  return designs;
}

/// "12,300 (11,900-12,500)".
std::string value_text(const RpcFigure& figure, const RpcRow* row) {
  if (row == nullptr) return "";
  if (!row->failure.empty()) return "failed";
  const RpcQuantity q = figure.quantity;
  std::string text = report::figure(row->median(q));
  if (row->rounds.size() > 1) {
    text += fmt::format(" ({}-{})", report::figure(row->low(q)), report::figure(row->high(q)));
  }
  if (row->lost() > 0) text += fmt::format(" lost {}", row->lost());
  return text;
}

report::Table design_table(const RpcFigureResult& result) {
  report::Table table{{{"load", false}, {"design", false}}, {}};
  for (const RpcForm form : kRpcForms) {
    table.columns.push_back(
        {fmt::format("{} form, {}", to_string(form), unit_of(result.figure.quantity))});
  }
  for (const RpcCell& cell : result.figure.cells) {
    for (const rpc::models::Design* design : designs_in(result)) {
      const std::string calls = report::grouped(cell.load.calls * cell.load.clients);
      std::vector<std::string> row{fmt::format("{}, n = {}", cell.label, calls),
                                   std::string(design->title)};
      for (const RpcForm form : kRpcForms) {
        row.push_back(value_text(result.figure, find_row(result, cell.label, design, form)));
      }
      if (!std::all_of(row.begin() + 2, row.end(), [](const auto& word) { return word.empty(); })) {
        table.rows.push_back(std::move(row));
      }
    }
  }
  return table;
}

/// Whether own designs are ahead by more than a twentieth in each pair; behind in each; or neither.
std::string_view standing(const RpcFigure& figure, const std::optional<RpcGain>& gain) {
  constexpr double kCounts = 0.05;
  if (!gain) return "not run";
  const bool more_is_better = figure.quantity == RpcQuantity::CallsPerSecond;
  const double worst = more_is_better ? gain->from : -gain->to;
  const double best = more_is_better ? gain->to : -gain->from;
  if (worst > kCounts) return "ahead of all";
  if (best < kCounts) return "ahead of none";
  return "ahead of some";
}

report::Table claim_table(const RpcFigureResult& result) {
  report::Table table{{{"own designs beside the others", false},
                       {"paper says", false},
                       {"paper form", false},
                       {"artifact form", false},
                       {"equalised", false},
                       {"equalised, in words", false}},
                      {}};
  for (const RpcClaim& claim : result.figure.claims) {
    std::vector<std::string> row{std::string(claim.where), std::string(claim.paper_says)};
    for (const RpcForm form : kRpcForms) {
      row.push_back(gain_text(gain_of(result.figure, claim, result.rows, form)));
    }
    row.emplace_back(
        standing(result.figure, gain_of(result.figure, claim, result.rows, RpcForm::Equalised)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// What each confounder alone makes of each claim; empty: they were not asked for.
report::Table confounder_table(const RpcFigureResult& result) {
  report::Table table{{{"equalised, and this alone", false}}, {}};
  const bool asked = std::any_of(result.rows.begin(), result.rows.end(),
                                 [](const RpcRow& row) { return !row.confounder.empty(); });
  if (!asked) return table;
  for (const RpcClaim& claim : result.figure.claims) {
    table.columns.push_back({std::string(claim.where), false});
  }
  const auto add = [&](const std::string& name, std::string_view confounder) {
    std::vector<std::string> row{name};
    for (const RpcClaim& claim : result.figure.claims) {
      row.push_back(
          gain_text(gain_of(result.figure, claim, result.rows, RpcForm::Equalised, confounder)));
    }
    table.rows.push_back(std::move(row));
  };
  add("nothing", "");
  for (const RpcConfounder& each : rpc_confounders()) add(std::string(each.name), each.name);
  return table;
}

/// Figure 20: shares of a call.
report::Table breakdown_table(const RpcFigureResult& result) {
  report::Table table{{{"design", false},
                       {"call, us"},
                       {"sender's software, us"},
                       {"receiver's software, us"},
                       {"network and waiting, us"}},
                      {}};
  for (const RpcRow& row : result.rows) {
    if (row.point.form != RpcForm::Equalised || !row.confounder.empty() || !row.is_whole()) {
      continue;
    }
    const RpcSample& sample = row.rounds.front();
    const double rest = sample.mean_us - sample.client_us - sample.server_us;
    table.rows.push_back({std::string(row.point.design->title), report::figure(sample.mean_us),
                          report::figure(sample.client_us), report::figure(sample.server_us),
                          rest > 0 ? report::figure(rest) : "not waited for"});
  }
  return table;
}

report::BarChart chart_of(const RpcFigureResult& result) {
  report::BarChart chart;
  chart.title = fmt::format("Figure {}: {}", result.figure.name, result.figure.title);
  chart.unit = unit_of(result.figure.quantity);
  for (const RpcForm form : kRpcForms) chart.bar_names.emplace_back(to_string(form));
  chart.panels_per_row = 1;
  for (const RpcCell& cell : result.figure.cells) {
    report::BarChart::Panel panel{cell.label, {}};
    for (const rpc::models::Design* design : designs_in(result)) {
      report::BarChart::Group group{std::string(design->title), {}};
      bool any = false;
      for (const RpcForm form : kRpcForms) {
        const RpcRow* row = find_row(result, cell.label, design, form);
        const RpcQuantity q = result.figure.quantity;
        report::BarChart::Bar bar;
        if (row != nullptr && row->is_whole()) {
          any = true;
          bar = {row->median(q), value_text(result.figure, row), row->low(q), row->high(q)};
        }
        group.bars.push_back(bar);
      }
      if (any) panel.groups.push_back(std::move(group));
    }
    if (!panel.groups.empty()) chart.panels.push_back(std::move(panel));
  }
  return chart;
}

std::string failures_text(const RpcFigureResult& result) {
  std::string text;
  for (const RpcRow& row : result.rows) {
    if (row.failure.empty()) continue;
    text += fmt::format("FAILED {}, {}, {} form: {}\n", row.point.design->title, row.cell,
                        to_string(row.point.form), row.failure);
  }
  return text;
}

nlohmann::json json_of(const RpcFigure& figure, const RpcRow& row) {
  const RpcQuantity q = figure.quantity;
  nlohmann::json json{{"design", row.point.design->name},
                      {"form", to_string(row.point.form)},
                      {"confounder", row.confounder},
                      {"load", row.cell},
                      {"fabric", to_string(row.point.fabric)},
                      {"label", to_string(origin_of(row.point.fabric))},
                      {"failure", row.failure},
                      {"rounds", row.rounds.size()},
                      {"calls", row.rounds.empty() ? 0 : row.rounds.front().calls},
                      {"in_flight", row.point.in_flight()},
                      {"lost", row.lost()},
                      {"hash", report::configuration_hash(row.point.description())}};
  const bool found = row.is_whole();
  json["median"] = found ? nlohmann::json(row.median(q)) : nlohmann::json();
  json["low"] = found ? nlohmann::json(row.low(q)) : nlohmann::json();
  json["high"] = found ? nlohmann::json(row.high(q)) : nlohmann::json();
  return json;
}

nlohmann::json json_of(const RpcFigureResult& result, const RpcClaim& claim) {
  nlohmann::json json{{"where", claim.where}, {"paper_says", claim.paper_says}};
  for (const RpcForm form : kRpcForms) {
    const auto gain = gain_of(result.figure, claim, result.rows, form);
    json[std::string(to_string(form))] =
        gain ? nlohmann::json{{"from", gain->from}, {"to", gain->to}} : nlohmann::json();
  }
  return json;
}

}  // namespace

std::string rpc_text(const RpcFigureResult& result) {
  std::string text = fmt::format("Figure {}: {} [{}]\n\n", result.figure.name, result.figure.title,
                                 label_of(result));
  text += design_table(result).text() + "\n";
  if (!result.figure.claims.empty()) text += claim_table(result).text() + "\n";
  const report::Table alone = confounder_table(result);
  if (!alone.rows.empty()) text += alone.text() + "\n";
  if (result.figure.name == "20" && label_of(result) == "measured") {
    text += breakdown_table(result).text() + "\n";
  }
  if (!result.figure.note.empty()) text += fmt::format("{}\n", result.figure.note);
  return text + failures_text(result);
}

void add_rpc_figure(report::ReportPage& page, const RpcFigureResult& result) {
  const report::Origin origin = origin_of(result.fabric);
  page.heading(fmt::format("Figure {}: {}", result.figure.name, result.figure.title));
  if (const report::BarChart chart = chart_of(result); !chart.panels.empty()) {
    page.drawing(report::to_svg(chart), origin,
                 "Median of the rounds; whiskers are the lowest and the highest.");
  }
  if (!result.figure.claims.empty()) {
    page.table(claim_table(result), origin,
               "From the least favourable pair of designs to the most favourable one.");
  }
  const report::Table alone = confounder_table(result);
  if (!alone.rows.empty()) page.table(alone, origin, "Confounders one at a time.");
  if (result.figure.name == "20" && origin == report::Origin::Measured) {
    page.table(breakdown_table(result), origin, "Equalised form, first round.");
  }
  page.begin_details("All values");
  page.table(design_table(result), origin, "Median, and lowest to highest.");
  page.end_details();
  if (!result.figure.note.empty()) page.paragraph(result.figure.note);
}

std::string rpc_json(std::span<const RpcFigureResult> results, const nlohmann::json& failures,
                     const report::Setup& setup) {
  nlohmann::json out{{"format", 1}, {"failures", failures}};
  for (const auto& [name, value] : setup.rows) out["setup"][name] = value;
  out["figures"] = nlohmann::json::array();
  for (const RpcFigureResult& result : results) {
    nlohmann::json figure{{"name", result.figure.name},
                          {"title", result.figure.title},
                          {"unit", unit_of(result.figure.quantity)},
                          {"claims", nlohmann::json::array()},
                          {"rows", nlohmann::json::array()}};
    for (const RpcClaim& claim : result.figure.claims) {
      figure["claims"].push_back(json_of(result, claim));
    }
    for (const RpcRow& row : result.rows) figure["rows"].push_back(json_of(result.figure, row));
    out["figures"].push_back(std::move(figure));
  }
  return json_text(out, 2) + "\n";
}

}  // namespace perdure::bench
