// The requester's end of a session, verb by verb, as the tests of the daemon use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/peer.h"
#include "fabric/fabric.h"

namespace perdure::server {

/// Far enough away that only a hang reaches it.
Deadline soon();

/// Posts one request on the start of the pool and waits for its completion; nothing: it succeeded.
std::optional<ErrorCode> run(client::Session& session, fabric::Device& device,
                             fabric::Opcode opcode, std::span<std::byte> bytes);

/// An update message of 64 bytes of 5 for `offset` of the pool, to be copied, flushed and answered.
std::vector<std::byte> update_message(const client::Session& session, std::uint64_t sequence,
                                      std::uint64_t offset);

/// Sends an update message and waits for its answer. Returns the status in it; -1 without one.
int update(client::Session& session, fabric::Device& device, std::uint64_t sequence,
           std::uint64_t offset);

}  // namespace perdure::server
