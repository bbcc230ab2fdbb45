// What has to wake a connection that sleeps. No verbs in here.
//
// Sends and receives of a connection share one completion queue. Asked for solicited events only,
// an RNIC raises one for each message that its sender marked (SEND and WRITE_WITH_IMM are, see
// work_batch.h) and for each completion with an error, and for nothing else (InfiniBand volume 1,
// 11.4.2.2). So who waits for messages alone need not be woken by a completion of its own:
//
//   in flight at this end        its success is awaited by       asks for
//   a request of the caller      the caller                      all events
//   a credit, and more are due   the next credit, by poll        all events
//   a credit, or a question      nobody                          solicited events
//   nothing                      nobody                          solicited events
//
// A wake-up too many costs some microseconds; one that is missed is a connection that stands still.
#pragma once

namespace perdure::fabric::verbs {

/// What a connection knows about itself before it sleeps.
struct Sleeper {
  bool peer_solicits = false;       // all its messages are marked: it has said so
  bool requests_in_flight = false;  // of the caller: posted or held, and not reported
  bool credit_in_flight = false;    // a word of this end's that tells the peer of receives
  bool credits_due = false;         // there are more to tell, which must wait for that
  bool question_in_flight = false;  // whether the peer is there
  /// The RNIC raises no event for an error when it is asked for solicited ones. rxe does not: its
  /// failed sends are completed as not solicited (Linux, rxe_comp.c, do_complete).
  bool errors_are_silent = false;
};

/// Whether it is enough to ask for solicited events.
constexpr bool sleeps_for_messages_only(const Sleeper& sleeper) {
  if (!sleeper.peer_solicits || sleeper.requests_in_flight) return false;
  if (sleeper.credit_in_flight && sleeper.credits_due) return false;
  const bool may_fail = sleeper.credit_in_flight || sleeper.question_in_flight;
  return !(may_fail && sleeper.errors_are_silent);
}

}  // namespace perdure::fabric::verbs
