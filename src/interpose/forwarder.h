// Forwarder: the back-end of `perdure mirror run`. What a thread flushed goes to the command at its
// next drain, by a channel (channel.h), and the drain waits until it is durable on the replicas.
#pragma once

#include "interpose/backend.h"

namespace perdure::interpose {

/// Over the channel at `path`. Null: there is none, and a message says why.
/// Requires  it is called once.
Backend* forward_over(const char* path);

}  // namespace perdure::interpose
