// The ring keeps its laws: reports in order, memory is never called free too early, and it never
// stays full while the provider confirms what it was asked to.
#include "fabric/ofi/tcp_request_ring.h"

#include "core/random.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>

namespace perdure::fabric::ofi {
namespace {

WorkRequest request(Opcode opcode, std::uint64_t context, bool signalled = true) {
  WorkRequest made;
  made.opcode = opcode;
  made.context = context;
  made.signalled = signalled;
  return made;
}

/// Pushes and issues at once; returns whether the provider is asked to confirm.
bool issue(TcpRequestRing& ring, const WorkRequest& what, bool copied) {
  ring.push(what);
  const bool asked = ring.wants_confirmation(copied);
  ring.mark_issued(copied, asked);
  return asked;
}

/// The same as TcpEndpoint does it mostly. Requires takes_at_once().
bool issue_at_once(TcpRequestRing& ring, const WorkRequest& what, bool copied) {
  const bool asked = ring.must_confirm(what.opcode, what.signalled, copied);
  ring.push_issued(what, copied, asked);
  return asked;
}

std::optional<std::uint64_t> reported(TcpRequestRing& ring) {
  Completion completion;
  if (!ring.report(completion)) return std::nullopt;
  return completion.context;
}

TEST(TcpRequestRing, CopiedRequestIsCompleteWithoutTheProvider) {
  TcpRequestRing ring(8);
  EXPECT_FALSE(issue(ring, request(Opcode::Send, 1), true));
  EXPECT_EQ(reported(ring), 1u);
  EXPECT_EQ(reported(ring), std::nullopt);
}

TEST(TcpRequestRing, CopiedRequestWaitsForUncopiedOnesBeforeIt) {
  // A completion says that the memory of everything before it is free.
  TcpRequestRing ring(8);
  EXPECT_FALSE(issue(ring, request(Opcode::Write, 1, false), false));
  EXPECT_TRUE(issue(ring, request(Opcode::Send, 2), true));
  EXPECT_EQ(reported(ring), std::nullopt);
  ring.confirm(1);
  EXPECT_EQ(reported(ring), 2u);
}

TEST(TcpRequestRing, ReadIsConfirmedOnlyByItsAnswer) {
  TcpRequestRing ring(8);
  EXPECT_TRUE(issue(ring, request(Opcode::Read, 1), false));
  EXPECT_TRUE(issue(ring, request(Opcode::Write, 2), false));
  ring.confirm(1);  // the write was sent
  EXPECT_TRUE(ring.reads_in_flight());
  EXPECT_EQ(reported(ring), std::nullopt);
  ring.confirm(0);  // the answer came
  EXPECT_EQ(reported(ring), 1u);
  EXPECT_EQ(reported(ring), 2u);
}

TEST(TcpRequestRing, NothingGoesAtOnceBehindWhatIsHeldOrIntoAFullRing) {
  TcpRequestRing ring(8);
  ASSERT_TRUE(ring.takes_at_once());
  ring.push(request(Opcode::Write, 1));  // held back
  EXPECT_FALSE(ring.takes_at_once());
  ring.mark_issued(true, false);
  std::size_t issued = 1;
  while (!ring.full()) {
    if (ring.takes_at_once()) {
      issue_at_once(ring, request(Opcode::Write, 2), true);
    } else {
      issue(ring, request(Opcode::Write, 2), true);
    }
    ++issued;
  }
  EXPECT_EQ(issued, 8u);
  EXPECT_FALSE(ring.takes_at_once());
}

TEST(TcpRequestRing, OneInSoManyDoesNotGoAtOnceAndIsConfirmed) {
  // Else the provider would confirm nothing of what is copied and not signalled.
  TcpRequestRing ring(256);
  std::size_t at_once = 0;
  while (ring.takes_at_once()) {
    ASSERT_FALSE(issue_at_once(ring, request(Opcode::Send, 1, false), true));
    ASSERT_LT(++at_once, 64u);
  }
  EXPECT_EQ(at_once, 63u);
  EXPECT_TRUE(issue(ring, request(Opcode::Send, 2, false), true));
  EXPECT_TRUE(ring.takes_at_once());
}

TEST(TcpRequestRing, LossFailsEverythingUnreportedEvenUnsignalled) {
  TcpRequestRing ring(8);
  issue(ring, request(Opcode::Write, 1, false), false);
  issue(ring, request(Opcode::Read, 2), false);
  ring.push(request(Opcode::Send, 3));  // held back
  Completion completion;
  for (std::uint64_t context = 1; context <= 3; ++context) {
    ASSERT_TRUE(ring.report_lost(completion));
    EXPECT_EQ(completion.context, context);
    EXPECT_EQ(completion.error, ErrorCode::OutcomeUnknown);
  }
  EXPECT_FALSE(ring.report_lost(completion));
}

// A provider that confirms what it is asked to, late, in order, and answers Reads later still.
TEST(TcpRequestRing, RandomTrafficIsReportedInOrderAndNeverStalls) {
  for (const std::size_t depth : {1u, 2u, 3u, 7u, 64u, 256u}) {
    TcpRequestRing ring(depth);
    Random random(depth);
    std::deque<std::uint64_t> asked_posted;
    std::deque<std::uint64_t> asked_reads;
    std::deque<std::uint64_t> expected;
    std::uint64_t pushed = 0;
    for (int step = 0; step < 200'000; ++step) {
      if (!ring.full() && random.chance(2, 3)) {
        const Opcode opcode = random.chance(1, 5) ? Opcode::Read : Opcode::Write;
        const bool signalled = opcode == Opcode::Read || random.chance(1, 3);
        const bool copied = opcode != Opcode::Read && random.chance(1, 2);
        const WorkRequest made = request(opcode, pushed, signalled);
        const bool at_once = random.chance(1, 2) && ring.takes_at_once();
        if (at_once ? issue_at_once(ring, made, copied) : issue(ring, made, copied)) {
          (opcode == Opcode::Read ? asked_reads : asked_posted).push_back(pushed);
        }
        if (signalled) expected.push_back(pushed);
        ++pushed;
      } else if (!asked_posted.empty() && random.chance(1, 2)) {
        ring.confirm(asked_posted.front());
        asked_posted.pop_front();
      } else if (!asked_reads.empty()) {
        ring.confirm(asked_reads.front());
        asked_reads.pop_front();
      } else if (asked_posted.empty()) {
        while (const auto context = reported(ring)) {
          ASSERT_EQ(*context, expected.front());
          expected.pop_front();
        }
        // Everything asked for is confirmed: there is room again.
        ASSERT_FALSE(ring.full()) << "depth " << depth;
      }
    }
    EXPECT_GT(pushed, 10'000u) << "depth " << depth;
  }
}

}  // namespace
}  // namespace perdure::fabric::ofi
