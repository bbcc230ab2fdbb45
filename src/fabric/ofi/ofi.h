// Connections over libfabric's `tcp` provider: for every machine without an RNIC.
//
// What it makes of the contract in fabric.h, and what it rests on (libfabric 1.17, prov/tcp):
//   - One ordered byte stream per connection, worked off by the peer's poll in order: posted
//     operations are visible in order, and a receive completion comes after all before it.
//   - Transport::Tcp: a posted operation completes when its bytes were copied or given to the
//     kernel, so before the peer has any of it. A Read completes when the peer, having executed
//     all before it, answered: that is the only one-sided proof of visibility.
//   - WriteImm is a Write followed by an empty message that carries the immediate, because the
//     provider's own remote completion data consumes no receive buffer and tells no length.
//   - A refused address makes the peer's provider drop the connection without a word, so the
//     requester sees OutcomeUnknown, and only from the next completion that it waits for.
//   - No FLUSH, no atomics: Unsupported.
//   - What is posted in one call leaves in one packet where it fits: post a write and its message
//     together.
//   - A peer that dies is noticed when its kernel closes the connection; a peer whose machine
//     dies, 10 s after the last sign of life of an idle connection. With data in flight the kernel
//     tries for minutes: callers keep deadlines of their own.
//
// Trust. Keys are random and live in the domain of one Device: a connection reaches only what was
// registered on the Device that it was accepted into. But the provider believes the lengths that a
// peer puts on the wire (ofi_mr_map_verify adds address and length without looking for overflow):
// mistakes are refused, a malicious peer that holds a valid key is not. Accept only peers that
// were authenticated, and give keys only to those.
//
// Revocation. Destroying a Memory refuses every request that arrives afterwards, but a write whose
// header had arrived may still place its remaining bytes. To fence a peer, or before the bytes are
// freed, disconnect the endpoints of that Device as well.
#pragma once

#include "fabric/fabric.h"

namespace perdure::fabric::ofi {

/// Opens the tcp provider. The first call of a process takes a quarter of a second, in which
/// libfabric initialises itself. After that it takes microseconds, so that a server can have one
/// Device, and with it one set of keys, for each session.
///
/// Addresses are "host:port", "1.2.3.4:port" or "[v6]:port"; names are resolved when connecting.
/// Errors: Unsupported when this build or machine has no libfabric with the tcp provider.
Result<std::unique_ptr<Device>> open_device();

/// What takes so long then, and nothing that a forked child could not use. Where it fails,
/// open_device() says why.
void prepare_to_open();

}  // namespace perdure::fabric::ofi
