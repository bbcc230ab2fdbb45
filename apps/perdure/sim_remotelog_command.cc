// `perdure sim remotelog`: the taxonomy paper's figure 2, 72 configurations, on a hardware file.
#include "core/json.h"
#include "core/named.h"
#include "core/try.h"
#include "output.h"
#include "profile_options.h"
#include "report/table.h"
#include "sim_commands.h"
#include "sim_files.h"
#include "sim_remotelog_runs.h"

#include <fmt/format.h>

#include <memory>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

enum class RemotelogFormat { Text, Json, Csv, Plot };

struct RemotelogCommandOptions {
  std::string hardware;  // a file; empty: the paper's testbed
  sim::RemotelogOptions run;
  std::uint64_t record_bytes = 64;
  double rnr_timer_us = 10;
  RemotelogFormat output = RemotelogFormat::Text;
};

Result<RemotelogFormat> parse_remotelog_format(std::string_view word) {
  return find_named<RemotelogFormat>(
      "format", word, std::to_array<std::string_view>({"text", "json", "csv", "plot"}));
}

/// Whether section 4.2's stand-in is asked for.
Result<bool> parse_stand_in(std::string_view word) {
  if (word == "stand-in") return true;
  if (word == "native") return false;
  return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is none of: stand-in, native", word)};
}

ordered_json json_of(const sim::RemotelogResult& result) {
  const auto us = [](std::uint64_t ps) { return static_cast<double>(ps) / 1e6; };
  return {{"mean_us", mean_us(result)},
          {"p50_us", us(result.append.quantile(0.5))},
          {"p99_us", us(result.append.quantile(0.99))},
          {"max_us", us(result.append.max())},
          {"rnr_naks", result.counts.rnr_naks},
          {"head_reads", result.counts.head_reads},
          {"responder_us", result.counts.responder_ns / 1e3},
          {"applier_us", result.counts.applier_ns / 1e3}};
}

std::string json_of(const std::vector<RemotelogRow>& rows,
                    const std::vector<Assumption>& assumptions, const Hardware& hardware,
                    const RemotelogCommandOptions& options) {
  ordered_json list = ordered_json::array();
  for (const RemotelogRow& row : rows) {
    const ServerProfile& profile = row.scenario.profile;
    ordered_json one{{"panel", std::string(1, panel_of(row.scenario))},
                     {"bar", bar_of(row.scenario)},
                     {"domain", to_string(profile.domain)},
                     {"ddio", to_string(profile.ddio)},
                     {"receive_buffers", to_string(profile.receive_buffers)},
                     {"operation", to_string(row.scenario.primary)},
                     {"update", to_string(row.scenario.shape)},
                     {"method", row.scenario.method.name},
                     {"two_sided", two_sided(row.scenario.method)},
                     {"round_trips", round_trips(row.scenario.method)},
                     {"append", json_of(row.published)},
                     {"universal", json_of(row.universal)}};
    list.push_back(std::move(one));
  }
  const sim::ResponderOptions& responder = options.run.responder;
  const auto word = [](bool stands_in) { return stands_in ? "stand-in" : "native"; };
  const ordered_json document{{"format", 1},
                              {"label", "simulated"},
                              {"hardware", hardware.network.name},
                              {"records", options.run.records},
                              {"record_bytes", options.record_bytes},
                              {"flush", word(options.run.read_for_flush)},
                              {"atomic_write", word(options.run.write_for_atomic)},
                              {"receive_buffers", responder.receive_buffers},
                              {"recycle_ns", responder.recycle},
                              {"rnr_timer_us", options.rnr_timer_us},
                              {"log_records", responder.log_records},
                              {"apply_ns", responder.apply},
                              {"universal_method", kUniversalMethod},
                              {"configurations", std::move(list)},
                              {"claims", json_of(remotelog_claims(rows))},
                              {"assumptions", json_of(assumptions)},
                              {"remarks", remotelog_remarks(rows)}};
  return json_text(document, 2) + "\n";
}

report::Table table_of(const std::vector<RemotelogRow>& rows) {
  report::Table table;
  table.columns = {{"panel", false},  {"server", false}, {"bar", false},
                   {"method", false}, {"mean, us"},      {"p99, us"},
                   {"max, us"},       {"RNR NAKs"},      {"right everywhere, us"},
                   {"over its own"}};
  for (const RemotelogRow& row : rows) {
    const auto us = [](std::uint64_t ps) {
      return fmt::format("{:.2f}", static_cast<double>(ps) / 1e6);
    };
    const double mean = mean_us(row.published);
    table.rows.push_back({std::string(1, panel_of(row.scenario)),
                          fmt::format("{}, {}", to_string(row.scenario.profile.domain),
                                      to_string(row.scenario.shape)),
                          bar_of(row.scenario), row.scenario.method.name,
                          fmt::format("{:.2f}", mean), us(row.published.append.quantile(0.99)),
                          us(row.published.append.max()),
                          std::to_string(row.published.counts.rnr_naks),
                          fmt::format("{:.2f}", mean_us(row.universal)),
                          fmt::format("{:.2f}", mean_us(row.universal) / mean)});
  }
  return table;
}

std::string text_of(const std::vector<RemotelogRow>& rows,
                    const std::vector<Assumption>& assumptions, const Hardware& hardware,
                    const RemotelogCommandOptions& options) {
  std::string text = fmt::format(
      "simulated: REMOTELOG, {} appends of {} bytes in each configuration, {}\n\n{}\n",
      options.run.records, options.record_bytes, hardware.network.name, table_of(rows).text());
  text += fmt::format("The taxonomy paper, by section:\n{}\n{}\n",
                      claims_table(remotelog_claims(rows)).text(),
                      assumptions_table(assumptions).text());
  for (const std::string& remark : remotelog_remarks(rows)) text += "- " + remark + "\n";
  return text;
}

ExitStatus run_sim_remotelog(RemotelogCommandOptions options) {
  const auto hardware = options.hardware.empty()
                            ? Result<Hardware>(default_hardware(Transport::InfiniBand))
                            : read_hardware(options.hardware);
  if (!hardware.ok()) {
    print_error(hardware.error());
    return ExitStatus::Failed;
  }
  options.run.record_bytes = static_cast<double>(options.record_bytes);
  options.run.responder.rnr_timer = options.rnr_timer_us * 1e3;
  const auto study = study_remotelog(*hardware, options.run);
  if (!study.ok()) {
    print_error(study.error());
    return ExitStatus::Failed;
  }
  const auto& [rows, assumptions] = *study;
  switch (options.output) {
    case RemotelogFormat::Text: print(text_of(rows, assumptions, *hardware, options)); break;
    case RemotelogFormat::Json: print(json_of(rows, assumptions, *hardware, options)); break;
    case RemotelogFormat::Csv: print(table_of(rows).csv()); break;
    case RemotelogFormat::Plot: print(remotelog_drawing(rows)); break;
  }
  return ExitStatus::Ok;
}

void add_server_options(Command command, RemotelogCommandOptions& options) {
  using Limit = std::uint64_t;
  constexpr double kSlowestNs = 1e6;
  sim::ResponderOptions& responder = options.run.responder;
  command
      .add_option("--receive-buffers", responder.receive_buffers,
                  "That the server has posted; 0: always one more")
      .range(Limit{0}, Limit{65536})
      .capture_default();
  command
      .add_option("--recycle-ns", responder.recycle,
                  "Until the server has posted a used receive buffer again (50)")
      .range(0.0, kSlowestNs)
      .option_text("N");
  command
      .add_option("--rnr-timer-us", options.rnr_timer_us,
                  "Of the client's RNIC, when there was no receive buffer (10)")
      .range(0.0, 655'360.0)
      .option_text("N");
  command.add_option("--log-records", responder.log_records, "That have room; 0: always one more")
      .range(Limit{0}, Limit{1} << 30)
      .capture_default();
  command.add_option("--apply-ns", responder.apply, "The server applies a record, meanwhile (200)")
      .range(0.0, kSlowestNs)
      .option_text("N");
}

}  // namespace

void add_sim_remotelog_command(Command sim) {
  const auto options = std::make_shared<RemotelogCommandOptions>();
  const Command command = sim.add_subcommand(
      "remotelog",
      "A log in another machine's memory, 72 configurations: the taxonomy paper's figure 2");
  command
      .add_option("--hardware", options->hardware,
                  "Network and server, TOML (edr-one-switch, the paper's testbed)")
      .option_text("FILE")
      .each(check_file_name);
  command.add_option("--records", options->run.records, "That are appended in each configuration")
      .range(std::uint64_t{1}, std::uint64_t{100'000'000})
      .capture_default();
  add_size_option(command, "--record-bytes", options->record_bytes, "Of a record", 1,
                  std::uint64_t{1} << 20);
  add_word_option(command, "--flush", options->run.read_for_flush, parse_stand_in,
                  "RDMA FLUSH, or the READ that section 4.2 takes for it (stand-in)",
                  "stand-in|native");
  add_word_option(command, "--atomic-write", options->run.write_for_atomic, parse_stand_in,
                  "ATOMIC WRITE, or section 4.2's WRITE between two READs (stand-in)",
                  "stand-in|native");
  add_server_options(command, *options);
  add_word_option(command, "--format", options->output, parse_remotelog_format,
                  "How to print it; plot is figure 2, SVG (text)", "text|json|csv|plot");
  add_examples(
      command,
      "  perdure sim remotelog\n"
      "  perdure sim remotelog --atomic-write native --flush native --format json\n"
      "  perdure sim remotelog --receive-buffers 16 --recycle-ns 4000   # section 4.3's jitter\n"
      "docs/simulator.md says what is simulated. Exit status: 0 simulated, 1 an input is wrong, 2 "
      "wrong command line.");
  run_with(command, [options] { return run_sim_remotelog(*options); });
}

}  // namespace perdure::app
