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

/// Where answers of one size were before the first poll.
struct AnswerPlaces {
  std::uint64_t in_buffer = 0;
  std::uint64_t in_completion = 0;  // not there, and found by polls that took no time
  std::uint64_t late = 0;           // may have come with the polls: says nothing
};

/// What follows from where the answers were; `tried`: whether all could be asked for.
CertifyCheck judge_places(const AnswerPlaces& brief, const AnswerPlaces& replayable,
                          const Result<void>& tried);

/// The check "cqe-payload": has the peer answer with messages of 24 bytes, and of as many as the
/// shortest that Perdure replays, and looks into their buffers first.
///
/// Requires  nothing was sent on the session; it is not used for messages afterwards.
/// Cost      some milliseconds; 20, and no less than `pass` takes sixteen times, for each answer
/// that
///           is in no buffer, of at most six.
CertifyCheck cqe_payload(Session& session, fabric::Device& device, const Clock& clock,
                         const PassTime& pass);

}  // namespace perdure::client
