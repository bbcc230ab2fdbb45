// What servers and clients of calls on k servers count, as text for Prometheus.
#pragma once

#include <perdure/replicated_rpc.h>

#include <string>

namespace perdure::replicated_rpc {

std::string metrics_text(const std::string& service, const ReplicatedRpcServerStatus& status);
std::string metrics_text(const std::string& service, const std::string& client,
                         const ReplicatedRpcClientStatus& status);

}  // namespace perdure::replicated_rpc
