// The probes of requester.h as compiled methods: what is timed to learn what a connection costs.
// They are none of a Method's business: nothing becomes durable by them.
#pragma once

#include <perdure/profile.h>

#include "persist/compiled_method.h"
#include "persist/responder.h"

#include <cstddef>
#include <vector>

namespace perdure::persist {

inline constexpr std::size_t kProbeLineBytes = 64;

/// Bytes of nothing that fill a message of this queue; at least one line.
std::size_t probe_padding_bytes(const ReceiveQueue& queue);

/// One method for each Probe, in their order.
std::vector<CompiledMethod> compile_probes(const ServerProfile& profile, const Capabilities& device,
                                           std::size_t padding_bytes);

}  // namespace perdure::persist
