// Who sleeps for messages alone, and who must hear of its own completions.
#include "fabric/verbs/wake_up.h"

#include <gtest/gtest.h>

namespace perdure::fabric::verbs {
namespace {

TEST(WakeUp, OnlyWhoWaitsForNothingOfItsOwnAsksForSolicitedEvents) {
  struct Case {
    Sleeper sleeper;
    bool messages_only;
  };
  const Case cases[] = {
      {{.peer_solicits = true}, true},
      {{}, false},  // an older peer, or iWARP: nothing that it sends is marked
      {{.peer_solicits = true, .requests_in_flight = true}, false},
      {{.peer_solicits = true, .credit_in_flight = true}, true},
      {{.peer_solicits = true, .credit_in_flight = true, .credits_due = true}, false},
      {{.peer_solicits = true, .question_in_flight = true}, true},
      {{.peer_solicits = true, .errors_are_silent = true}, true},
      {{.peer_solicits = true, .credit_in_flight = true, .errors_are_silent = true}, false},
      {{.peer_solicits = true, .question_in_flight = true, .errors_are_silent = true}, false},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(sleeps_for_messages_only(each.sleeper), each.messages_only) << &each - cases;
  }
}

// A spare wake-up is cheap, a missed one is a hang: whatever else is the case, these want all.
TEST(WakeUp, NothingMakesUpForARequestInFlightOrAPeerThatMarksNoMessages) {
  for (unsigned bits = 0; bits < 64; ++bits) {
    const Sleeper sleeper{(bits & 1) != 0, (bits & 2) != 0,  (bits & 4) != 0,
                          (bits & 8) != 0, (bits & 16) != 0, (bits & 32) != 0};
    if (!sleeper.peer_solicits || sleeper.requests_in_flight) {
      EXPECT_FALSE(sleeps_for_messages_only(sleeper)) << bits;
    }
  }
}

}  // namespace
}  // namespace perdure::fabric::verbs
