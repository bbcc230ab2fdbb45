// Which connections end with an event of their RNIC, played with queue pairs that no RNIC made.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/fates.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>

namespace perdure::fabric::verbs {
namespace {

ibv_async_event event_of_queue_pair(ibv_event_type type, ibv_qp& qp) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &qp;
  return event;
}

/// Three connections. The first two share a completion queue, as ours never do.
class FatesTest : public testing::Test {
 protected:
  FatesTest() {
    for (std::size_t i = 0; i < 3; ++i) {
      ibv_cq* const queue = &queues_[i == 2 ? 1 : 0];
      connections_[i].send_cq = connections_[i].recv_cq = queue;
      told_[i] = std::make_shared<Fate>();
      fates_.watch(&connections_[i], told_[i]);
    }
  }
  std::array<bool, 3> broken() const {
    return {told_[0]->broken.load(), told_[1]->broken.load(), told_[2]->broken.load()};
  }

  std::array<ibv_cq, 2> queues_{};
  std::array<ibv_qp, 3> connections_{};
  std::array<std::shared_ptr<Fate>, 3> told_;
  Fates fates_;
};

using Broken = std::array<bool, 3>;

TEST_F(FatesTest, AnErrorOfAQueuePairEndsThatConnectionOnly) {
  for (const auto type : {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
    told_[1]->broken = false;
    fates_.take(event_of_queue_pair(type, connections_[1]));
    EXPECT_EQ(broken(), (Broken{false, true, false})) << ::ibv_event_type_str(type);
  }
  EXPECT_FALSE(fates_.dead());
}

// A completion queue that was overrun has lost completions: whoever waits for one waits for ever.
TEST_F(FatesTest, AnOverrunQueueEndsAllThatCompleteIntoIt) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = &queues_[0];
  fates_.take(event);
  EXPECT_EQ(broken(), (Broken{true, true, false}));
  EXPECT_FALSE(fates_.dead());
  EXPECT_EQ(meaning_of(IBV_EVENT_CQ_ERR).severity, Severity::Error);
}

TEST_F(FatesTest, ADeviceThatFailedEndsAllAndServesNobodyAnyMore) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  event.element.port_num = 1;
  fates_.take(event);
  EXPECT_EQ(broken(), (Broken{true, true, true}));
  EXPECT_TRUE(fates_.dead());
  EXPECT_EQ(meaning_of(IBV_EVENT_DEVICE_FATAL).severity, Severity::Error);
  // Who connects just then hears of it all the same.
  ibv_qp late{};
  const auto fate = std::make_shared<Fate>();
  fates_.watch(&late, fate);
  EXPECT_TRUE(fate->broken);
}

TEST_F(FatesTest, ARemovalIsAFailureOfTheDevice) {
  fates_.condemn();
  EXPECT_EQ(broken(), (Broken{true, true, true}));
  EXPECT_TRUE(fates_.dead());
}

// A key is gone when a sound RNIC says so, or when the kernel has made a failed one anew.
TEST_F(FatesTest, AFailedRnicIsNotBelievedBeforeItsReset) {
  EXPECT_TRUE(fates_.has_let_go(0, true));
  EXPECT_FALSE(fates_.has_let_go(EBUSY, true));
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  fates_.take(event);
  EXPECT_FALSE(fates_.has_let_go(0, true));
  EXPECT_FALSE(fates_.has_let_go(EIO, true));
  fates_.condemn();  // removed, or about to be
  EXPECT_FALSE(fates_.has_let_go(0, true));
  fates_.note_successor();
  EXPECT_TRUE(fates_.dead());
  EXPECT_TRUE(fates_.has_let_go(EIO, false));
}

// mlx5's driver says "destroyed" for an RNIC that has failed, before the event comes.
TEST_F(FatesTest, ASuccessIsNotBelievedOfAnRnicThatAnswersNothingElse) {
  EXPECT_FALSE(fates_.has_let_go(0, false));
  EXPECT_FALSE(fates_.dead());
  EXPECT_TRUE(fates_.has_let_go(0, true));  // asked again: it was sound after all
}

TEST_F(FatesTest, ASuccessorIsTheEndOfWhoHeardOfNoEvent) {
  fates_.note_successor();
  EXPECT_EQ(broken(), (Broken{true, true, true}));
  EXPECT_TRUE(fates_.has_let_go(EIO, false));
}

TEST_F(FatesTest, WhatSaysNothingAboutConnectionsEndsNone) {
  for (const auto type :
       {IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PORT_ACTIVE,
        IBV_EVENT_PORT_ERR, IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE, IBV_EVENT_SM_CHANGE,
        IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_GID_CHANGE}) {
    fates_.take(event_of_queue_pair(type, connections_[0]));
    EXPECT_EQ(broken(), (Broken{false, false, false})) << ::ibv_event_type_str(type);
  }
  EXPECT_EQ(meaning_of(IBV_EVENT_PORT_ERR).severity, Severity::Warning);
}

TEST_F(FatesTest, WhoIsWatchedNoMoreIsNotTold) {
  fates_.unwatch(&connections_[0]);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_DEVICE_FATAL;
  fates_.take(event_of_queue_pair(IBV_EVENT_QP_FATAL, connections_[0]));
  fates_.take(event);
  EXPECT_EQ(broken(), (Broken{false, true, true}));
}

}  // namespace
}  // namespace perdure::fabric::verbs
#endif
