// Counters as text for Prometheus: see metrics.h. docs/rpc.md has the same table.
#include "replicated_rpc/metrics.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "core/metrics_writer.h"

namespace perdure::replicated_rpc {
namespace {

/// Values that have the same labels, each with a name of its own.
class Labelled {
 public:
  Labelled(MetricsWriter& text, std::string labels) : text_(text), labels_(std::move(labels)) {}

  template <typename Number>
  void counter(std::string_view name, std::string_view help, Number number) {
    text_.head(name, help, "counter");
    text_.value(name, labels_, number);
  }
  template <typename Number>
  void gauge(std::string_view name, std::string_view help, Number number) {
    text_.head(name, help, "gauge");
    text_.value(name, labels_, number);
  }

 private:
  MetricsWriter& text_;
  const std::string labels_;
};

template <typename Value>
void write_by_client(MetricsWriter& text, const std::string& service,
                     const ReplicatedRpcServerStatus& status, std::string_view name,
                     std::string_view help, Value value) {
  text.head(name, help, "gauge");
  for (const ReplicatedRpcClientPlace& each : status.clients) {
    text.value(name, fmt::format("service=\"{}\",client=\"{}\"", service, each.name), value(each));
  }
}

int is_fenced(const std::optional<Error>& failure) {
  return failure && failure->code == ErrorCode::Fenced ? 1 : 0;
}

}  // namespace

std::string metrics_text(const std::string& service, const ReplicatedRpcServerStatus& status) {
  MetricsWriter text;
  Labelled served(text, fmt::format("service=\"{}\"", service));
  served.gauge("perdure_replicated_rpc_executing",
               "1 while this server executes calls, 0 after it was fenced or failed.",
               status.failure ? 0 : 1);
  served.gauge("perdure_replicated_rpc_fenced", "1 after a newer server has taken over.",
               is_fenced(status.failure));
  served.gauge("perdure_replicated_rpc_waiting",
               "1 while it waits for something that may pass: for the quorum, for example.",
               status.waiting ? 1 : 0);
  served.gauge("perdure_replicated_rpc_epoch", "Epoch of this server, of the log of effects.",
               status.epoch.value);
  served.counter("perdure_replicated_rpc_executed_total",
                 "Calls executed since it was opened, refused ones among them.", status.executed);
  served.counter("perdure_replicated_rpc_refused_total",
                 "Calls refused by their handlers, for want of one, set aside, or dropped.",
                 status.refused);
  served.counter("perdure_replicated_rpc_set_aside_total",
                 "Calls refused or held since servers have ended in their handlers.",
                 status.set_aside);
  served.gauge("perdure_replicated_rpc_careful_clients",
               "Clients whose calls are executed one at a time, to see which one ends servers.",
               status.careful);
  served.counter("perdure_replicated_rpc_rounds_total",
                 "Copies of everything that were written, so that old effects go.", status.rounds);
  served.gauge("perdure_replicated_rpc_effects_bytes", "Bytes of the log of effects that are kept.",
               status.effects_bytes);
  served.gauge("perdure_replicated_rpc_effects_bytes_max", "Bytes that the log of effects takes.",
               status.effects_bytes_max);
  served.gauge("perdure_replicated_rpc_quorum", "Replicas on which effects must be durable.",
               status.quorum);
  served.gauge("perdure_replicated_rpc_replicas", "Replicas of the log of effects.",
               status.replicas);
  served.gauge("perdure_replicated_rpc_replicas_up", "Those that are written to now.",
               status.replicas_up);
  write_by_client(text, service, status, "perdure_replicated_rpc_client_executed",
                  "Sequence of the last call that was executed.",
                  [](const auto& each) { return each.applied; });
  write_by_client(text, service, status, "perdure_replicated_rpc_client_waiting_bytes",
                  "Committed bytes of its log that were not read yet.",
                  [](const auto& each) { return each.waiting_bytes; });
  write_by_client(text, service, status, "perdure_replicated_rpc_client_attempts",
                  "Servers that have ended in its next call.",
                  [](const auto& each) { return each.attempts; });
  write_by_client(text, service, status, "perdure_replicated_rpc_client_held",
                  "1 while its next call is set aside, and waits for an operator.",
                  [](const auto& each) { return each.held ? 1 : 0; });
  write_by_client(text, service, status, "perdure_replicated_rpc_client_failed",
                  "1 after its log contradicted what was executed: nothing more of it is.",
                  [](const auto& each) { return each.failure ? 1 : 0; });
  return text.take();
}

std::string metrics_text(const std::string& service, const std::string& client,
                         const ReplicatedRpcClientStatus& status) {
  MetricsWriter text;
  Labelled called(text, fmt::format("service=\"{}\",client=\"{}\"", service, client));
  called.gauge("perdure_replicated_rpc_caller_usable",
               "1 while this client calls, 0 after it was fenced or its pools were older copies.",
               status.failure ? 0 : 1);
  called.gauge("perdure_replicated_rpc_caller_fenced", "1 after a newer process has its name.",
               is_fenced(status.failure));
  called.gauge("perdure_replicated_rpc_caller_reading",
               "1 while it can read the effects, from which it learns what is applied.",
               status.unread ? 0 : 1);
  called.gauge("perdure_replicated_rpc_caller_epoch", "Epoch of this client, of its log of calls.",
               status.epoch.value);
  called.gauge("perdure_replicated_rpc_caller_begun", "Sequence of the last call.", status.begun);
  called.gauge("perdure_replicated_rpc_caller_applied",
               "Sequence of the last call that it knows to be applied.", status.applied);
  called.gauge("perdure_replicated_rpc_caller_calls_bytes", "Bytes of its log that are kept.",
               status.calls_bytes);
  called.gauge("perdure_replicated_rpc_caller_calls_bytes_max", "Bytes that its log takes.",
               status.calls_bytes_max);
  called.gauge("perdure_replicated_rpc_caller_quorum", "Replicas on which calls must be durable.",
               status.quorum);
  called.gauge("perdure_replicated_rpc_caller_replicas", "Replicas of its log.", status.replicas);
  called.gauge("perdure_replicated_rpc_caller_replicas_up", "Those that are written to now.",
               status.replicas_up);
  return text.take();
}

}  // namespace perdure::replicated_rpc
