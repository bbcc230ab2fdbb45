// What a durable RPC server counts, as text for Prometheus.
#pragma once

#include <perdure/rpc.h>

#include <string>

namespace perdure::rpc {

std::string metrics_text(const RpcServerStatus& status);

}  // namespace perdure::rpc
