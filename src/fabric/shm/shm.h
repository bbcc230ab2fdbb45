// Connections between processes of one host over shared memory.
//
// Each connection is a sealed memfd with a stream of requests and a stream of answers in each
// direction, and a UNIX socket that hands the memory over, wakes sleepers and tells when the peer
// has died. The responder's poll works the requests off strictly in order.
//
// What that makes of the contract in fabric.h:
//   - Transport::Shm: a posted operation completes when the responder has executed it, so its
//     bytes are visible by then. (Stronger than the contract asks; needs the responder to poll.)
//   - Without a receive buffer at the responder, a Send and all that follows waits; nothing is
//     lost and nothing overtakes.
//   - A refused address completes with OutOfRange; earlier requests were executed, later ones not.
//   - After a Memory is destroyed not one byte more is placed in it, also of a write in flight.
//   - AtomicWrite, CompareSwap and FetchAdd work on 8 aligned bytes; the old value goes to the
//     request's segment, if it has one. There is no native FLUSH.
//
// No trust in the peer is needed: whatever it writes into the shared memory is copied, then
// checked. Nothing is left behind by killed processes: neither files nor names. The host's memory
// is the only medium, so a power failure that loses this side loses the peer too: use it for
// tests, for one host's applications, and for measuring.
//
// docs/decisions tells why this is not libfabric's shm provider.
#pragma once

#include "fabric/fabric.h"

namespace perdure::fabric::shm {

/// Opens a device: a set of keys of its own, nothing else.
///
/// Addresses are "@name" for a name in the host's abstract namespace (seen by all of the network
/// namespace), or a path for a socket in the file system, guarded by its permissions.
Result<std::unique_ptr<Device>> open_device();

}  // namespace perdure::fabric::shm
