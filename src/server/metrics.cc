// Counters as text for Prometheus: see metrics.h. docs/control-plane.md has the same table.
#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/metrics_writer.h"

namespace perdure::server {
namespace {

struct Counter {
  const char* name;
  const char* help;
  std::uint64_t control::ServiceCounters::*value;
};

constexpr std::array kCounters{
    Counter{"perdure_messages_total", "Messages handled.", &control::ServiceCounters::messages},
    Counter{"perdure_refused_messages_total",
            "Messages malformed or outside the pool, not executed.",
            &control::ServiceCounters::refused_messages},
    Counter{"perdure_copied_bytes_total", "Bytes copied from messages to their place.",
            &control::ServiceCounters::copied_bytes},
    Counter{"perdure_flush_calls_total", "Flushes of the medium; one may serve many messages.",
            &control::ServiceCounters::flush_calls},
    Counter{"perdure_acks_total", "Acknowledgements sent; one may serve many messages.",
            &control::ServiceCounters::acks},
    Counter{"perdure_sessions_total", "Sessions granted.", &control::ServiceCounters::sessions},
    Counter{"perdure_writers_fenced_total", "Sessions ended for a newer writer.",
            &control::ServiceCounters::writers_fenced},
    Counter{"perdure_replayed_messages_total", "Messages applied from persistent receive buffers.",
            &control::ServiceCounters::replayed_messages},
    Counter{"perdure_medium_failures_total", "Times the pool's medium failed while it was served.",
            &control::ServiceCounters::medium_failures},
    Counter{"perdure_revocation_failures_total",
            "Times the RNIC did not take a session's keys away.",
            &control::ServiceCounters::revocation_failures},
};

double in_seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string pool_label(const control::PoolReport& report) {
  return fmt::format("pool=\"{}\"", report.pool.name);
}

void write_pools(MetricsWriter& text, const control::ServiceReport& report) {
  text.head("perdure_pool_available", "1 when sessions can be granted.", "gauge");
  for (const control::PoolReport& each : report.pools) {
    text.value("perdure_pool_available", pool_label(each),
               each.pool.state == control::PoolStatus::Open ? 1 : 0);
  }
  text.head("perdure_pool_bytes", "Exported bytes.", "gauge");
  for (const control::PoolReport& each : report.pools) {
    text.value("perdure_pool_bytes", pool_label(each), each.pool.bytes);
  }
  text.head("perdure_pool_epoch", "Epoch of the last writer.", "gauge");
  for (const control::PoolReport& each : report.pools) {
    text.value("perdure_pool_epoch", pool_label(each), each.pool.epoch.value);
  }
  constexpr const char* oldest = "perdure_oldest_work_seconds";
  text.head(oldest, "For how long the oldest piece of work on the pool has not ended.", "gauge");
  for (const control::PoolReport& each : report.pools) {
    text.value(oldest, pool_label(each),
               in_seconds(static_cast<std::uint64_t>(each.oldest_work.count())));
  }
}

void write_sessions(MetricsWriter& text, const control::ServiceReport& report) {
  text.head("perdure_sessions", "Sessions open now.", "gauge");
  for (const control::PoolReport& each : report.pools) {
    std::uint64_t readers = 0;
    std::uint64_t writers = 0;
    for (const control::SessionDescription& session : report.sessions) {
      if (session.pool == each.pool.name) ++(session.write ? writers : readers);
    }
    text.value("perdure_sessions", pool_label(each) + ",mode=\"read\"", readers);
    text.value("perdure_sessions", pool_label(each) + ",mode=\"write\"", writers);
  }
  constexpr const char* unrevoked = "perdure_sessions_unrevoked";
  text.head(unrevoked, "Sessions that ended, and whose keys may be alive: no writer is granted.",
            "gauge");
  for (const control::PoolReport& each : report.pools) {
    const auto kept =
        std::count_if(report.sessions.begin(), report.sessions.end(), [&](const auto& session) {
          return session.pool == each.pool.name && !session.unrevoked.empty();
        });
    text.value(unrevoked, pool_label(each), static_cast<std::uint64_t>(kept));
  }
}

struct LogGauge {
  const char* name;
  const char* help;
  std::uint64_t (*value)(const control::LogReport& log);
};

constexpr std::array kLogGauges{
    LogGauge{"perdure_log_ring_bytes", "Bytes of the log's ring.",
             [](const control::LogReport& log) { return log.ring_bytes; }},
    LogGauge{"perdure_log_used_bytes", "Of them, those between head and tail.",
             [](const control::LogReport& log) { return log.tail.value - log.head.value; }},
    LogGauge{"perdure_log_head_lsn", "LSN of the oldest record that is kept here.",
             [](const control::LogReport& log) { return log.head.value; }},
    LogGauge{"perdure_log_tail_lsn", "LSN below which everything is known to be durable here.",
             [](const control::LogReport& log) { return log.tail.value; }},
    LogGauge{"perdure_log_committed_lsn", "LSN below which everything is known to be committed.",
             [](const control::LogReport& log) { return log.committed.value; }},
    LogGauge{"perdure_log_epoch", "Epoch that this replica is a full part of.",
             [](const control::LogReport& log) { return std::uint64_t{log.epoch.value}; }},
    LogGauge{"perdure_log_replicas", "Replicas that the log has, wherever.",
             [](const control::LogReport& log) { return std::uint64_t{log.replicas}; }},
    LogGauge{"perdure_log_quorum", "Replicas that must have a record for it to be committed.",
             [](const control::LogReport& log) { return std::uint64_t{log.quorum}; }},
    LogGauge{"perdure_log_whole", "0 while this replica is made or brought to equal.",
             [](const control::LogReport& log) { return std::uint64_t{log.whole ? 1U : 0U}; }},
};

void write_logs(MetricsWriter& text, const control::ServiceReport& report) {
  for (const LogGauge& gauge : kLogGauges) {
    text.head(gauge.name, gauge.help, "gauge");
    for (const control::PoolReport& each : report.pools) {
      if (!each.log || each.log->removed) continue;  // what is no part of it says nothing of it
      text.value(gauge.name, fmt::format("{},log=\"{:016x}\"", pool_label(each), each.log->log_id),
                 gauge.value(*each.log));
    }
  }
}

void write_times(MetricsWriter& text, const control::ServiceReport& report, const char* name,
                 const char* help, control::TimeCounts control::ServiceTimes::*which) {
  text.head(name, help, "histogram");
  for (const control::PoolReport& each : report.pools) {
    const control::TimeCounts& counts = each.times.*which;
    const std::string pool = pool_label(each);
    const std::string bucket = fmt::format("{}_bucket", name);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < control::TimeCounts::kBoundsNs.size(); ++i) {
      below += counts.classes[i];
      text.value(bucket,
                 fmt::format("{},le=\"{}\"", pool, in_seconds(control::TimeCounts::kBoundsNs[i])),
                 below);
    }
    below += counts.classes.back();
    text.value(bucket, pool + ",le=\"+Inf\"", below);
    text.value(fmt::format("{}_sum", name), pool, in_seconds(counts.sum_ns));
    text.value(fmt::format("{}_count", name), pool, below);
  }
}

void write_refused(MetricsWriter& text, const control::RefusedCounters& refused) {
  constexpr const char* name = "perdure_refused_requests_total";
  text.head(name, "Requests refused before they reached a pool.", "counter");
  text.value(name, "reason=\"token\"", refused.tokens);
  text.value(name, "reason=\"expired\"", refused.expired);
  text.value(name, "reason=\"displaced\"", refused.displaced);
  text.value(name, "reason=\"unauthorized\"", refused.unauthorized);
  text.value(name, "reason=\"request\"", refused.requests);
}

}  // namespace

std::string metrics_text(const control::ServiceReport& report) {
  MetricsWriter text;
  text.head("perdure_build_info", "The version that runs.", "gauge");
  text.value("perdure_build_info", fmt::format("version=\"{}\"", report.service.version), 1);
  write_pools(text, report);
  write_sessions(text, report);
  for (const Counter& counter : kCounters) {
    text.head(counter.name, counter.help, "counter");
    for (const control::PoolReport& each : report.pools) {
      text.value(counter.name, pool_label(each), each.counters.*counter.value);
    }
  }
  write_times(text, report, "perdure_flush_duration_seconds",
              "Flushes of the medium; where it is memory, one of 17 is timed.",
              &control::ServiceTimes::flush);
  write_times(text, report, "perdure_answer_duration_seconds",
              "Handling and answering what had arrived; where it is memory, one of 17 is timed.",
              &control::ServiceTimes::answer);
  write_logs(text, report);
  write_refused(text, report.refused);
  return text.take();
}

std::string metrics_text(const HttpCounters& counters) {
  MetricsWriter text;
  text.head("perdure_http_connections", "Connections of the control plane now.", "gauge");
  text.value("perdure_http_connections", "", counters.connections);
  text.head("perdure_http_accepted_total", "Connections taken.", "counter");
  text.value("perdure_http_accepted_total", "", counters.accepted);
  constexpr const char* name = "perdure_http_ended_total";
  text.head(name, "Connections ended or requests refused for the sake of others.", "counter");
  text.value(name, "reason=\"slow\"", counters.slow);
  text.value(name, "reason=\"displaced\"", counters.displaced);
  text.value(name, "reason=\"full\"", counters.full);
  text.value(name, "reason=\"busy\"", counters.busy);
  text.value(name, "reason=\"descriptors\"", counters.descriptors);
  return text.take();
}

std::string metrics_text(const RpmemCounters& counters) {
  MetricsWriter text;
  text.single("perdure_rpmem_clients", "Clients of librpmem now, an rpmemd for each.", "gauge",
              counters.clients);
  text.single("perdure_rpmem_clients_max", "So many may be at a time.", "gauge",
              counters.clients_max);
  text.single("perdure_rpmem_started_total", "Clients for which an rpmemd was started.", "counter",
              counters.started);
  text.single("perdure_rpmem_failed_total", "Rpmemd that ended otherwise than with status 0.",
              "counter", counters.failed);
  constexpr const char* name = "perdure_rpmem_refused_total";
  text.head(name, "Clients refused, or closed before they had asked.", "counter");
  text.value(name, "reason=\"full\"", counters.full);
  text.value(name, "reason=\"unauthorized\"", counters.unauthorized);
  text.value(name, "reason=\"command\"", counters.wrong);
  text.value(name, "reason=\"silent\"", counters.silent);
  text.value(name, "reason=\"program\"", counters.not_started);
  return text.take();
}

}  // namespace perdure::server
