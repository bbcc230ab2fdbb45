// Where the bytes of a message are before anybody polls for it: in the receive buffer, where replay
// would look after a crash, or still in the completion queue entry. Of the RNIC on this side.
#pragma once

#include "client/certify.h"
#include "client/peer.h"
#include "core/clock.h"

#include <functional>

namespace perdure::client {

/// Lets some time pass in which nothing polls the session. Errors end the check.
using PassTime = std::function<Result<void>()>;

/// The check "cqe-payload": has the peer answer with messages of 24 bytes, and of as many as the
/// shortest that Perdure replays, and looks into their buffers first.
///
/// Requires  nothing was sent on the session; it is not used for messages afterwards.
/// Cost      some milliseconds; 20 for each answer that is in no buffer.
CertifyCheck cqe_payload(Session& session, fabric::Device& device, const Clock& clock,
                         const PassTime& pass);

}  // namespace perdure::client
