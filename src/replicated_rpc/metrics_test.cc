// What is counted is said, with the labels of its service and client.
#include "replicated_rpc/metrics.h"

#include <gtest/gtest.h>

namespace perdure::replicated_rpc {
namespace {

bool has(const std::string& text, const std::string& line) {
  return text.find("\n" + line + "\n") != std::string::npos;
}

TEST(ReplicatedRpcMetrics, OfAServerAreThoseOfItsStatus) {
  ReplicatedRpcServerStatus status;
  status.epoch = Epoch{7};
  status.executed = 11;
  status.refused = 2;
  status.rounds = 3;
  status.set_aside = 4;
  status.careful = 1;
  status.effects_bytes = 500;
  status.effects_bytes_max = 1000;
  status.quorum = 2;
  status.replicas = 3;
  status.replicas_up = 1;
  status.waiting = Error{ErrorCode::QuorumLost, "for a peer"};
  status.clients.push_back({"one", 5, 9, 64, 2, std::nullopt, true});
  status.clients.push_back({"two", 6, 2, 0, 0, Error{ErrorCode::Corrupt, "older pools"}, false});
  std::string text = metrics_text("bank", status);
  for (const char* const line : {"executing{service=\"bank\"} 1",
                                 "fenced{service=\"bank\"} 0",
                                 "waiting{service=\"bank\"} 1",
                                 "epoch{service=\"bank\"} 7",
                                 "executed_total{service=\"bank\"} 11",
                                 "refused_total{service=\"bank\"} 2",
                                 "rounds_total{service=\"bank\"} 3",
                                 "effects_bytes{service=\"bank\"} 500",
                                 "effects_bytes_max{service=\"bank\"} 1000",
                                 "quorum{service=\"bank\"} 2",
                                 "replicas{service=\"bank\"} 3",
                                 "replicas_up{service=\"bank\"} 1",
                                 "client_executed{service=\"bank\",client=\"one\"} 9",
                                 "client_executed{service=\"bank\",client=\"two\"} 2",
                                 "client_waiting_bytes{service=\"bank\",client=\"one\"} 64",
                                 "set_aside_total{service=\"bank\"} 4",
                                 "careful_clients{service=\"bank\"} 1",
                                 "client_attempts{service=\"bank\",client=\"one\"} 2",
                                 "client_held{service=\"bank\",client=\"one\"} 1",
                                 "client_held{service=\"bank\",client=\"two\"} 0",
                                 "client_failed{service=\"bank\",client=\"one\"} 0",
                                 "client_failed{service=\"bank\",client=\"two\"} 1"}) {
    EXPECT_TRUE(has(text, std::string("perdure_replicated_rpc_") + line)) << line << "\n" << text;
  }
  EXPECT_TRUE(has(text, "# TYPE perdure_replicated_rpc_executed_total counter"));
  EXPECT_TRUE(has(text, "# TYPE perdure_replicated_rpc_client_executed gauge"));
  status.failure = Error{ErrorCode::Fenced, "by a newer one"};
  text = metrics_text("bank", status);
  EXPECT_TRUE(has(text, "perdure_replicated_rpc_executing{service=\"bank\"} 0"));
  EXPECT_TRUE(has(text, "perdure_replicated_rpc_fenced{service=\"bank\"} 1"));
  status.failure->code = ErrorCode::Corrupt;
  EXPECT_TRUE(
      has(metrics_text("bank", status), "perdure_replicated_rpc_fenced{service=\"bank\"} 0"));
}

TEST(ReplicatedRpcMetrics, OfAClientAreThoseOfItsStatus) {
  ReplicatedRpcClientStatus status;
  status.begun = 8;
  status.applied = 6;
  status.calls_bytes = 100;
  status.calls_bytes_max = 4096;
  status.unread = Error{ErrorCode::Disconnected, "no peer"};
  status.failure = Error{ErrorCode::Fenced, "a newer process"};
  const std::string text = metrics_text("bank", "one", status);
  const std::string labels = "{service=\"bank\",client=\"one\"} ";
  for (const auto& [name, value] :
       {std::pair{"usable", 0}, std::pair{"fenced", 1}, std::pair{"reading", 0},
        std::pair{"begun", 8}, std::pair{"applied", 6}, std::pair{"calls_bytes", 100},
        std::pair{"calls_bytes_max", 4096}}) {
    const std::string line =
        std::string("perdure_replicated_rpc_caller_") + name + labels + std::to_string(value);
    EXPECT_TRUE(has(text, line)) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace perdure::replicated_rpc
