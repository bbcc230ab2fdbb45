// Counters as text for Prometheus: see rpc_metrics.h. docs/rpc.md has the same table.
#include "rpc/rpc_metrics.h"

#include <fmt/format.h>

#include "core/clock.h"
#include "core/metrics_writer.h"

namespace perdure::rpc {
namespace {

template <typename Value>
void write_by_client(MetricsWriter& text, const RpcServerStatus& status, std::string_view name,
                     std::string_view help, std::string_view type, Value value) {
  text.head(name, help, type);
  for (const RpcClientPlace& each : status.clients) {
    text.value(name, fmt::format("client=\"{}\"", each.name), value(each));
  }
}

std::string labels_of(const RpcExecuting& executing) {
  return fmt::format("client=\"{}\",operator=\"{}\"", executing.client, executing.operation);
}

void write_executing(MetricsWriter& text, const RpcServerStatus& status) {
  const auto lasted = [](const RpcExecuting& each) { return to_seconds(each.lasted); };
  text.head("perdure_rpc_executing_seconds", "For how long a call has been in its handler.",
            "gauge");
  for (const RpcExecuting& each : status.executing) {
    if (each.sequence == 0) continue;
    text.value("perdure_rpc_executing_seconds", labels_of(each), lasted(each));
  }
  text.head("perdure_rpc_executing_call", "Sequence of that call, of its client.", "gauge");
  for (const RpcExecuting& each : status.executing) {
    if (each.sequence == 0) continue;
    text.value("perdure_rpc_executing_call", labels_of(each), each.sequence);
  }
  text.head("perdure_rpc_querying_seconds", "For how long a query has been in its handler.",
            "gauge");
  for (const RpcExecuting& each : status.executing) {
    if (each.sequence != 0) continue;
    text.value("perdure_rpc_querying_seconds", labels_of(each), lasted(each));
  }
}

}  // namespace

std::string metrics_text(const RpcServerStatus& status) {
  MetricsWriter text;
  text.single("perdure_rpc_executing", "1 while calls are executed, 0 after the medium refused.",
              "gauge", status.failure ? 0 : 1);
  text.single("perdure_rpc_applied_total", "Calls applied, refused ones among them.", "counter",
              status.applied);
  text.single("perdure_rpc_refused_total", "Calls that their handlers refused.", "counter",
              status.refused);
  text.single("perdure_rpc_unknown_total", "Calls for operators without a handler.", "counter",
              status.unknown);
  text.single("perdure_rpc_set_aside_total",
              "How often a call was set aside, for its handler failed each time.", "counter",
              status.set_aside);
  text.single("perdure_rpc_dropped_total", "Calls set aside that an operator refused.", "counter",
              status.dropped);
  text.single("perdure_rpc_refused_failed_total",
              "Calls refused at once since their handler failed each time.", "counter",
              status.refused_failed);
  text.single("perdure_rpc_cancelled_total", "Calls that their clients took back.", "counter",
              status.cancelled);
  text.single("perdure_rpc_transactions_total", "Transactions; each took one flush.", "counter",
              status.transactions);
  text.single("perdure_rpc_queries_total", "Queries answered.", "counter", status.queries);
  text.single("perdure_rpc_expired_total", "Clients that lost their place.", "counter",
              status.expired);
  write_by_client(text, status, "perdure_rpc_client_applied", "Sequence of the last applied call.",
                  "gauge", [](const RpcClientPlace& each) { return each.applied; });
  write_by_client(text, status, "perdure_rpc_client_waiting", "Durable calls that are not applied.",
                  "gauge", [](const RpcClientPlace& each) { return each.waiting; });
  write_by_client(text, status, "perdure_rpc_client_held",
                  "1 while its calls wait for an operator, since the next one is set aside.",
                  "gauge", [](const RpcClientPlace& each) { return each.held ? 1 : 0; });
  write_executing(text, status);
  return text.take();
}

}  // namespace perdure::rpc
