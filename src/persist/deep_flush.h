// A range of the pool made durable beyond the memory controller by the responder: see
// pmem::Region::deep_flush.
//
// Payload of the request (wire.h), 16 bytes, little-endian:
//
//   0       8     offset   from the start of the exported part
//   8       8     bytes    1 or more
//
// The reply has no payload.
#pragma once

#include "persist/request_handler.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace perdure::persist {

using DeepFlushPayload = std::array<std::byte, 16>;
DeepFlushPayload encode_deep_flush(std::uint64_t at, std::uint64_t bytes);

/// Errors: InvalidArgument, OutOfRange; Unsupported: of this medium.
RequestHandler& deep_flush_handler();

}  // namespace perdure::persist
