// Findings as text, JSON and on a page.
#include "bench/limits.h"

#include "core/json.h"
#include "report/charts.h"
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::bench {
namespace {

std::string with_spread(const Series& series) {
  if (series.values.empty()) return "";
  if (series.values.size() == 1) return report::figure(series.median());
  return fmt::format("{} ±{}", report::figure(series.median()), report::figure(series.deviation()));
}

std::string over(const Finding& finding) {
  if (finding.origin == report::Origin::Measured) return finding.fabric;
  return fmt::format("{}, {}", finding.fabric, to_string(finding.origin));
}

/// Of all together.
report::Origin origin_of(const std::vector<Finding>& findings) {
  const bool emulated =
      !findings.empty() && std::all_of(findings.begin(), findings.end(), [](const Finding& each) {
        return each.origin == report::Origin::Emulated;
      });
  return emulated ? report::Origin::Emulated : report::Origin::Measured;
}

std::string ratio_text(const Series& ratio) {
  if (ratio.values.empty()) return "";
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", ratio.median(), ratio.low(), ratio.high());
}

std::string verdict_of(const Finding& finding) {
  if (!finding.failure.empty()) return "no answer";
  if (!finding.met) return "";
  return *finding.met ? "met" : "not met";
}

/// Of both sides, in the unit of the row.
std::string p99_text(const Finding& finding) {
  if (finding.perdure_p99.values.empty()) return "";
  const std::string ours = report::figure(finding.perdure_p99.median());
  if (finding.bare_p99.values.empty()) return "-, " + ours;
  return fmt::format("{}, {}", report::figure(finding.bare_p99.median()), ours);
}

/// Of 64 B until they are durable, and nothing else: not of calls that are applied too, nor of
/// transactions.
bool is_durable_latency(const Finding& finding) {
  return finding.unit.starts_with("us") && finding.question.find("64 B") != std::string::npos &&
         finding.question.find("durable") != std::string::npos;
}

/// The median, or nothing.
nlohmann::json median_json(const Series& series) {
  if (series.values.empty()) return nullptr;
  return series.median();
}

}  // namespace

report::Table limits_table(const std::vector<Finding>& findings) {
  report::Table table{{{"question", false},
                       {"over", false},
                       {"unit", false},
                       {"bare"},
                       {"Perdure"},
                       {"p99 of both"},
                       {"ratio"},
                       {"target", false},
                       {"", false}},
                      {}};
  for (const Finding& finding : findings) {
    table.rows.push_back({finding.question, over(finding), finding.unit, with_spread(finding.bare),
                          with_spread(finding.perdure), p99_text(finding),
                          ratio_text(finding.ratio), finding.target, verdict_of(finding)});
  }
  return table;
}

std::string limits_text(const std::vector<Finding>& findings) {
  std::string out = fmt::format(
      "Medians of rounds with their median absolute deviation; ratios round by round, lowest to "
      "highest [{}]\n\n",
      to_string(origin_of(findings)));
  out += limits_table(findings).text() + "\n";
  for (const Finding& finding : findings) {
    const std::string& words = finding.failure.empty() ? finding.note : finding.failure;
    if (words.empty()) continue;
    out += fmt::format("{}{}{}: {}\n", finding.question, finding.fabric.empty() ? "" : ", ",
                       finding.fabric, words);
  }
  return out;
}

std::string limits_json(const std::vector<Finding>& findings, const report::Setup& setup) {
  nlohmann::json out = {{"format", 1}};  // docs/limits.schema.json
  for (const auto& [name, value] : setup.rows) out["setup"][name] = value;
  out["findings"] = nlohmann::json::array();
  for (const Finding& finding : findings) {
    const Series& spread = finding.ratio.values.empty() ? finding.perdure : finding.ratio;
    const bool any = !spread.values.empty();
    nlohmann::json row{
        {"name", finding.question},
        {"fabric", finding.fabric},
        {"label", to_string(finding.origin)},
        {"unit", finding.unit},
        {"ours", median_json(finding.perdure)},
        {"bare", median_json(finding.bare)},
        {"ours_p99", median_json(finding.perdure_p99)},
        {"bare_p99", median_json(finding.bare_p99)},
        {"ratio", median_json(finding.ratio)},
        {"low", any ? nlohmann::json(spread.low()) : nlohmann::json(nullptr)},
        {"high", any ? nlohmann::json(spread.high()) : nlohmann::json(nullptr)},
        {"n", finding.perdure.values.size()},
        {"target", finding.target},
        {"note", finding.note},
        {"failure", finding.failure},
        {"rounds",
         {{"ours", finding.perdure.values},
          {"bare", finding.bare.values},
          {"ratio", finding.ratio.values}}},
        {"hash", report::configuration_hash(finding.question + "/" + finding.fabric)}};
    row["met"] = finding.met ? nlohmann::json(*finding.met) : nlohmann::json(nullptr);
    out["findings"].push_back(std::move(row));
  }
  return json_text(out, 1) + "\n";
}

void add_limits(report::ReportPage& page, const std::vector<Finding>& findings) {
  page.table(limits_table(findings), origin_of(findings),
             "Medians of rounds with their median absolute deviation. Ratios were taken round by "
             "round; their lowest and highest stand in parentheses.");
  report::BarChart chart{"Latency of 64 B, durable", "p50, us", {"bare", "Perdure"}, {}, 2};
  std::vector<Finding> drawn;
  for (const Finding& finding : findings) {
    if (finding.bare.values.empty() || !is_durable_latency(finding)) continue;
    drawn.push_back(finding);
    report::BarChart::Group group{"", {}};
    for (const Series* side : {&finding.bare, &finding.perdure}) {
      group.bars.push_back({side->median(),
                            fmt::format("{} us, {} to {}", report::figure(side->median()),
                                        report::figure(side->low()), report::figure(side->high())),
                            side->low(), side->high()});
    }
    chart.panels.push_back(
        {fmt::format("{}: {}", finding.fabric, finding.question), {std::move(group)}});
  }
  if (!chart.panels.empty()) {
    page.drawing(report::to_svg(chart), origin_of(drawn),
                 "Median of each side, and how it varied over the rounds.");
  }
  std::vector<std::string> notes;
  for (const Finding& finding : findings) {
    const std::string& words = finding.failure.empty() ? finding.note : finding.failure;
    if (words.empty()) continue;
    notes.push_back(finding.question + (finding.fabric.empty() ? "" : ", ") + finding.fabric +
                    ": " + words);
  }
  page.list(notes);
}

}  // namespace perdure::bench
