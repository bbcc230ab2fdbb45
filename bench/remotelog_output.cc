// Results of REMOTELOG as text, CSV, JSON and charts.
#include "bench/remotelog.h"
#include "core/json.h"
#include "fabric/verbs/verbs.h"
#include "report/charts.h"
#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

namespace perdure::bench {
namespace {

std::string_view source_word(plan::Source source) {
  return source == plan::Source::Paper ? "paper" : "best";
}

std::string responder_name(const ServerProfile& profile) {
  return fmt::format("{}, ddio {}, rq {}", to_string(profile.domain), to_string(profile.ddio),
                     to_string(profile.receive_buffers));
}

std::string value_of(const RemotelogRow& row) {
  return row.failure.empty() ? report::microseconds(row.latencies.quantile(0.5)) : "failed";
}

/// Rows of one table or drawing: one fabric, one source, one shape.
struct Selection {
  RemotelogFabric fabric;
  plan::Source source;
  std::string shape;
  auto operator<=>(const Selection&) const = default;
};

std::map<Selection, std::vector<const RemotelogRow*>> selections(
    const std::vector<RemotelogRow>& rows) {
  std::map<Selection, std::vector<const RemotelogRow*>> by;
  for (const RemotelogRow& row : rows) {
    // "singleton" after "compound" in the alphabet, but before it in the paper.
    const std::string shape = row.scenario.shape == singleton() ? "1 singleton" : "2 compound";
    by[{row.fabric, row.source, shape}].push_back(&row);
  }
  return by;
}

/// Three operations by responder.
report::Table median_table(const std::vector<const RemotelogRow*>& rows) {
  report::Table table{{{"responder", false}, {"write"}, {"write_imm"}, {"send"}}, {}};
  for (const RemotelogRow* row : rows) {
    const std::string name = responder_name(row->scenario.profile);
    if (table.rows.empty() || table.rows.back()[0] != name)
      table.rows.push_back({name, "", "", ""});
    table.rows.back()[1 + static_cast<std::size_t>(row->scenario.primary)] = value_of(*row);
  }
  return table;
}

std::string selection_title(const Selection& selection) {
  return fmt::format(
      "{}, {}, methods: {}", to_string(selection.fabric), selection.shape.substr(2),
      selection.source == plan::Source::Paper ? "as published" : "the planner's best");
}

/// One panel per domain, with the responders as groups: figure 2 of the paper.
report::BarChart median_chart(const std::vector<const RemotelogRow*>& rows,
                              const std::string& title) {
  report::BarChart chart{title, "p50, us", {"write", "write_imm", "send"}, {}, 3};
  for (const RemotelogRow* row : rows) {
    const ServerProfile& profile = row->scenario.profile;
    const std::string panel(to_string(profile.domain));
    if (chart.panels.empty() || chart.panels.back().title != panel) {
      chart.panels.push_back({panel, {}});
    }
    auto& groups = chart.panels.back().groups;
    const std::string label =
        fmt::format("ddio {}\nrq {}", to_string(profile.ddio), to_string(profile.receive_buffers));
    if (groups.empty() || groups.back().label != label) {
      groups.push_back({label, std::vector<report::BarChart::Bar>(3)});
    }
    const auto median = static_cast<double>(row->latencies.quantile(0.5).count()) / 1e3;
    groups.back().bars[static_cast<std::size_t>(row->scenario.primary)] = {
        median, fmt::format("{}: {}, p50 {} us", row->configuration(), row->scenario.method.name,
                            report::microseconds(row->latencies.quantile(0.5)))};
  }
  return chart;
}

nlohmann::json row_json(const RemotelogRow& row) {
  const auto us = [](Nanoseconds value) { return static_cast<double>(value.count()) / 1e3; };
  return {{"hash", row.hash()},
          {"configuration", row.configuration()},
          {"origin", to_string(origin_of(row.fabric))},
          {"fabric", to_string(row.fabric)},
          {"transport", to_string(row.scenario.profile.transport)},
          {"domain", to_string(row.scenario.profile.domain)},
          {"ddio", to_string(row.scenario.profile.ddio)},
          {"receive_buffers", to_string(row.scenario.profile.receive_buffers)},
          {"operation", to_string(row.scenario.primary)},
          {"shape", to_string(row.scenario.shape)},
          {"source", source_word(row.source)},
          {"method", row.scenario.method.name},
          {"round_trips", round_trips(row.scenario.method)},
          {"record_bytes", row.options.record_bytes},
          {"records", row.latencies.count()},
          {"window", row.options.window},
          {"replicas", row.options.replicas},
          {"seed", row.options.seed},
          {"warm_up", row.options.warm_up},
          {"mean_us", us(row.latencies.mean())},
          {"p50_us", us(row.latencies.quantile(0.5))},
          {"p99_us", us(row.latencies.quantile(0.99))},
          {"p999_us", us(row.latencies.quantile(0.999))},
          {"max_us", us(row.latencies.max())},
          {"records_per_second", row.records_per_second()},
          {"records_checked", row.checked},
          {"failure", row.failure}};
}

}  // namespace

std::string_view to_string(RemotelogFabric fabric) {
  switch (fabric) {
    case RemotelogFabric::Emu: return "emu";
    case RemotelogFabric::Tcp: return "tcp";
    case RemotelogFabric::Shm: return "shm";
    case RemotelogFabric::Verbs: return "verbs";
  }
  return "unknown";
}

report::Origin origin_of(RemotelogFabric fabric) {
  if (fabric == RemotelogFabric::Verbs) {
    const auto rnics = fabric::verbs::list_rnics();  // rxe and siw are drivers, not hardware
    return rnics.ok() && rnics->front().software ? report::Origin::Emulated
                                                 : report::Origin::Measured;
  }
  return fabric == RemotelogFabric::Emu ? report::Origin::Emulated : report::Origin::Measured;
}

double RemotelogRow::records_per_second() const {
  return seconds == 0 ? 0 : static_cast<double>(latencies.count()) / seconds;
}

std::string RemotelogRow::configuration() const {
  const ServerProfile& profile = scenario.profile;
  return fmt::format("{}/{}/ddio-{}/rq-{}/{}/{}", to_string(fabric), to_string(profile.domain),
                     to_string(profile.ddio), to_string(profile.receive_buffers),
                     to_string(scenario.primary), to_string(scenario.shape));
}

std::string RemotelogRow::hash() const {
  return report::configuration_hash(fmt::format(
      "{}/{}/{} bytes {} records {} warm-up {} window {} replicas {} seed {}", configuration(),
      to_string(scenario.profile.transport), source_word(source), options.record_bytes,
      options.records, options.warm_up, options.window, options.replicas, options.seed));
}

report::Table remotelog_table(const std::vector<RemotelogRow>& rows) {
  report::Table table{
      {{"hash", false},   {"origin", false}, {"fabric", false},    {"domain", false},
       {"ddio", false},   {"rq", false},     {"operation", false}, {"shape", false},
       {"source", false}, {"method", false}, {"record bytes"},     {"window"},
       {"replicas"},      {"seed"},          {"warm-up"},          {"n"},
       {"mean, us"},      {"p50, us"},       {"p99, us"},          {"p99.9, us"},
       {"max, us"},       {"records/s"},     {"checked"},          {"failure", false}},
      {}};
  const auto us = [](Nanoseconds value) {
    return fmt::format("{:.3f}", static_cast<double>(value.count()) / 1e3);
  };
  for (const RemotelogRow& row : rows) {
    const ServerProfile& profile = row.scenario.profile;
    table.rows.push_back({row.hash(),
                          std::string(to_string(origin_of(row.fabric))),
                          std::string(to_string(row.fabric)),
                          std::string(to_string(profile.domain)),
                          std::string(to_string(profile.ddio)),
                          std::string(to_string(profile.receive_buffers)),
                          std::string(to_string(row.scenario.primary)),
                          to_string(row.scenario.shape),
                          std::string(source_word(row.source)),
                          row.scenario.method.name,
                          std::to_string(row.options.record_bytes),
                          std::to_string(row.options.window),
                          std::to_string(row.options.replicas),
                          std::to_string(row.options.seed),
                          std::to_string(row.options.warm_up),
                          std::to_string(row.latencies.count()),
                          us(row.latencies.mean()),
                          us(row.latencies.quantile(0.5)),
                          us(row.latencies.quantile(0.99)),
                          us(row.latencies.quantile(0.999)),
                          us(row.latencies.max()),
                          fmt::format("{:.0f}", row.records_per_second()),
                          std::to_string(row.checked),
                          row.failure});
  }
  return table;
}

std::string remotelog_summary(const std::vector<RemotelogRow>& rows) {
  std::string out;
  for (const auto& [selection, chosen] : selections(rows)) {
    out += fmt::format("{}, p50 in us [{}]\n{}\n", selection_title(selection),
                       to_string(origin_of(selection.fabric)), median_table(chosen).text());
  }
  return out;
}

std::string remotelog_json(const std::vector<RemotelogRow>& rows, const report::Setup& setup) {
  nlohmann::json out;
  for (const auto& [name, value] : setup.rows) out["setup"][name] = value;
  out["rows"] = nlohmann::json::array();
  for (const RemotelogRow& row : rows) out["rows"].push_back(row_json(row));
  return json_text(out, 1) + "\n";
}

void add_remotelog(report::ReportPage& page, const std::vector<RemotelogRow>& rows) {
  for (const auto& [selection, chosen] : selections(rows)) {
    const std::string title = selection_title(selection);
    page.drawing(report::to_svg(median_chart(chosen, title)), origin_of(selection.fabric),
                 title + ".");
  }
  page.begin_details("Every configuration with its percentiles and the method that was run");
  page.table(remotelog_table(rows),
             rows.empty() ? report::Origin::Measured : origin_of(rows[0].fabric),
             "The column `origin` says where each row comes from.");
  page.end_details();
}

}  // namespace perdure::bench
