// Words and page of the demonstration.
#include "demo/report.h"

#include "core/byte_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::demo {
namespace {

std::string victim_name(const JobResult& job) {
  return fmt::format("peer {}", job.options.victim + 1);
}

std::string kill_sentence(const JobResult& job) {
  return fmt::format(
      "{} (process {}) was killed with SIGKILL after {} of {} records were committed; the log went "
      "on with the quorum of the other two. What the writer noticed: {}",
      victim_name(job), job.killed, report::grouped(job.killed_after),
      report::grouped(job.options.records),
      job.noticed.empty() ? "nothing (no record was in flight to it)" : job.noticed);
}

std::string repair_sentence(const JobResult& job) {
  if (!job.repair.repaired) return "The repair failed: " + job.repair.error;
  return fmt::format(
      "It was started again and repaired in {}: {}; {} copied from another replica",
      report::duration_text(Nanoseconds(static_cast<std::int64_t>(job.repair_seconds * 1e9))),
      job.repair.found, format_bytes(job.repair.copied_bytes));
}

std::string indented(const std::string& text) {
  std::string out = "  ";
  for (const char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out.substr(0, out.find_last_not_of(' ') + 1);
}

/// "peer 127.0.0.1:4711: one-message, because ...", once for replicas that are alike.
std::vector<std::string> method_sentences(const std::vector<ReplicaMethod>& methods) {
  std::vector<std::string> sentences;
  for (const ReplicaMethod& method : methods) {
    std::string large;
    if (method.large_method != method.small_method) {
      large = fmt::format(" Batches above {} use `{}`.", format_bytes(method.small_bytes_max),
                          method.large_method);
    }
    std::string sentence = fmt::format("({}) `{}`: {}.{}", method.profile, method.small_method,
                                       method.small_reason, large);
    const auto same = [&](const std::string& other) { return other.ends_with(sentence); };
    if (std::none_of(sentences.begin(), sentences.end(), same)) {
      sentences.push_back(method.peer + " " + std::move(sentence));
    } else if (sentences.size() == 1 && !sentences[0].starts_with("All replicas")) {
      sentences[0] = "All replicas alike " + sentence;
    }
  }
  return sentences;
}

std::string without_backticks(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
  return text;
}

void add_job(report::ReportPage& page, const JobResult& job) {
  page.heading(fmt::format("Three peers, {}", job.options.name));
  page.paragraph(fmt::format(
      "Three `perdured` processes on this machine, a log with write quorum 2, {} records. First "
      "with one record in flight ({}), then with {} in flight. {}.",
      report::grouped(job.options.records), report::grouped(job.one_records), job.options.window,
      kill_sentence(job)));
  page.paragraph(repair_sentence(job) + ".");
  page.drawing(report::to_svg(job.timeline.throughput_chart()), report::Origin::Measured,
               "Records committed per second. The log does not stop when a peer is killed.");
  page.drawing(report::to_svg(job.timeline.replica_chart()), report::Origin::Measured,
               "How much of the log is durable on each replica. The killed one stands still until "
               "it is repaired.");
  page.table(latency_table(job), report::Origin::Measured, "Latency of append, from the call.");
  report::PercentileChart chart{"Latency of append", {}};
  const std::string many = fmt::format("{} in flight", job.options.window);
  for (const auto& [name, histogram] :
       {std::pair{std::string("durable, 1 in flight"), &job.one.durable},
        std::pair{std::string("committed, 1 in flight"), &job.one.committed},
        std::pair{"durable, " + many, &job.many.durable},
        std::pair{"committed, " + many, &job.many.committed}}) {
    if (histogram->count() > 0) chart.series.push_back({name, histogram});
  }
  if (!chart.series.empty()) {
    page.drawing(report::to_svg(chart), report::Origin::Measured, "The same at every percentile.");
  }
  page.paragraph("The method that was chosen for each replica, and why:");
  page.list(method_sentences(job.methods));
  if (!job.lagging.empty())
    page.paragraph("A replica lagged when the log was closed: " + job.lagging);
  page.table(check_table(job.checks), report::Origin::Measured,
             "Every replica read back over its data plane when all was over.");
}

void add_power(report::ReportPage& page, const PowerResult& power) {
  page.heading("Power cuts on the emulated fabric");
  page.paragraph(fmt::format(
      "The same log on three emulated machines of different kinds. In each of {} worlds the power "
      "fails at a random instant while {} records are appended: of one machine, which is repaired "
      "later while the others go on, or of all three, and then a new writer recovers the log and "
      "goes on where it ends. Memory keeps what its kind keeps; what was on its way survives in "
      "any part, torn. {} of the cuts found records on their way. Reproduce with "
      "`--seed={:#x}`.",
      power.cuts.size(), report::grouped(power.options.records), power.cuts_in_flight,
      power.options.seed));
  page.list(method_sentences(power.methods));
  page.table(power_table(power), report::Origin::Emulated,
             "Each cut: no committed record may be missing afterwards, nothing may be read that "
             "was not appended, and all replicas must end up equal to the text.");
  report::PercentileChart chart{
      "Emulated latency of append",
      {{"durable", &power.latencies.durable}, {"committed", &power.latencies.committed}}};
  if (power.latencies.durable.count() == 0) return;
  page.drawing(report::to_svg(chart), report::Origin::Emulated,
               "Latency of append with one in flight on three machines of the first kind, by the "
               "emulated clock. Its times are assumptions about an RNIC, not measurements.");
}

void add_tiles(report::ReportPage& page, const DemoResult& result) {
  std::vector<report::Tile> tiles;
  for (const JobResult& job : result.jobs) {
    tiles.push_back({report::duration_text(job.one.durable.quantile(0.5)),
                     fmt::format("p50 to durable, {}", job.options.name)});
    tiles.push_back({report::figure(job.records_per_second()) + "/s",
                     fmt::format("records committed, {}", job.options.name)});
  }
  if (result.power) {
    tiles.push_back({std::to_string(result.power->cuts.size()),
                     "power cuts, no committed record lost", report::Origin::Emulated});
    if (!result.power->good()) tiles.back().name = "power cuts, and not all of them held";
  }
  page.tiles(tiles);
}

}  // namespace

bool DemoResult::good() const {
  const auto held = [](const JobResult& job) { return job.good(); };
  return !jobs.empty() && std::all_of(jobs.begin(), jobs.end(), held) && (!power || power->good());
}

std::string DemoResult::verdict() const {
  const bool all = std::all_of(jobs.begin(), jobs.end(),
                               [](const JobResult& job) { return all_equal(job.checks); });
  return all ? "Every replica holds every record, byte for byte"
             : "Every replica holds what was promised of it, byte for byte";
}

std::string job_text(const JobResult& job) {
  std::string out;
  for (const std::string& sentence : method_sentences(job.methods)) {
    out += without_backticks(sentence) + "\n";
  }
  out += "\n" + latency_table(job).text();
  out += fmt::format(
      "\n{} records/s ({}/s) with {} in flight\n\n", report::figure(job.records_per_second()),
      format_bytes(static_cast<std::uint64_t>(job.bytes_per_second())), job.options.window);
  out += kill_sentence(job) + "\n" + repair_sentence(job) + "\n\n";
  if (!job.lagging.empty()) out += "when the log was closed: " + job.lagging + "\n";
  out += check_table(job.checks).text();
  return indented(out);
}

std::string power_text(const PowerResult& power) {
  std::string out;
  for (const std::string& sentence : method_sentences(power.methods)) {
    out += without_backticks(sentence) + "\n";
  }
  out += "\n" + power_table(power).text();
  out += fmt::format(
      "\nemulated latency, one in flight, three dimms: durable p50 {}, p99 {}, p99.9 {}; "
      "committed p50 {}, p99 {}, p99.9 {}\n",
      report::duration_text(power.latencies.durable.quantile(0.5)),
      report::duration_text(power.latencies.durable.quantile(0.99)),
      report::duration_text(power.latencies.durable.quantile(0.999)),
      report::duration_text(power.latencies.committed.quantile(0.5)),
      report::duration_text(power.latencies.committed.quantile(0.99)),
      report::duration_text(power.latencies.committed.quantile(0.999)));
  return indented(out);
}

report::ReportPage demo_page(const DemoResult& result) {
  report::ReportPage page(
      "A record is durable on other machines, and stays",
      fmt::format("{} records of text ({}, {}) appended to a replicated log while "
                  "peers are killed and power fails.",
                  report::grouped(result.records), format_bytes(result.text_bytes),
                  result.text_origin));
  page.verdict(result.good(), result.good()
                                  ? result.verdict() + ", whatever happened to it."
                                  : "Something differs from what was appended: see below.");
  add_tiles(page, result);
  for (const JobResult& job : result.jobs) add_job(page, job);
  if (result.power) add_power(page, *result.power);
  report::Setup setup = report::machine_setup();
  setup.add("Text", result.text_origin);
  setup.add("Records", fmt::format("{}, {} in all, one line each", report::grouped(result.records),
                                   format_bytes(result.text_bytes)));
  setup.add("Replicas", "3, write quorum 2");
  for (const JobResult& job : result.jobs) {
    for (const ReplicaMethod& method : job.methods) {
      setup.add("Peer " + method.peer, fmt::format("{}: {}", job.options.name, method.profile));
    }
  }
  if (result.power) setup.add("Seed", fmt::format("{:#x}", result.power->options.seed));
  setup.add("Warm-up", "none: the first record counts");
  for (const std::string& reason : result.left_out) setup.add("Left out", reason);
  setup.add("Duration", fmt::format("{:.1f} s", result.seconds));
  page.setup(setup);
  return page;
}

}  // namespace perdure::demo
