// REMOTELOG simulated: an idle server adds nothing to a method's price, a slow one what its slowest
// part takes, and receive buffers that come back late cost timers.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "sim/method_price.h"
#include "sim/method_steps.h"
#include "sim/remotelog_run.h"

namespace perdure::sim {
namespace {

Method one_sided(Verb verb, bool replay = false) {
  Method method;
  method.requester = {post(verb), wait_completion(0)};
  method.requester[0].replay = replay;
  return method;
}

Method message() {
  Method method;
  method.requester = {post(Verb::Send), wait_ack()};
  method.responder = {{{ResponderAction::Kind::Copy, 0}, {ResponderAction::Kind::Ack, 0}}};
  return method;
}

ServerProfile persistent_caches() {
  ServerProfile profile;
  profile.domain = PersistenceDomain::Wsp;
  profile.ddio = Ddio::On;
  profile.transport = Transport::InfiniBand;
  return profile;
}

const Hardware& rdma() { return default_hardware(Transport::InfiniBand); }

double mean_ns(const RemotelogResult& result) { return result.append.mean() / 1e3; }

TEST(RemotelogRun, AnIdleServerAddsNothingToThePrice) {
  for (const Method& method : {one_sided(Verb::Write), one_sided(Verb::Send, true), message()}) {
    const RemotelogResult result = run_remotelog(method, persistent_caches(), rdma(), {});
    const Price once = price(method, persistent_caches(), rdma(), {});
    EXPECT_NEAR(mean_ns(result), once.latency_ns, 1);
    EXPECT_NEAR(static_cast<double>(result.append.max()) / 1e3, once.latency_ns,
                once.latency_ns / 64);
    EXPECT_EQ(result.counts.rnr_naks, 0U);
    EXPECT_EQ(result.counts.head_reads, 0U);
  }
}

// The buffer of a record that is replayed from it comes back when the record is applied.
TEST(RemotelogRun, SlowRecyclingSetsThePaceInTimersOfTheRnic) {
  RemotelogOptions options;
  options.records = 1000;
  options.responder.receive_buffers = 4;
  options.responder.apply = 0;
  options.responder.collect = 0;
  options.responder.recycle = 5000;
  options.responder.rnr_timer = 10'000;
  const Method method = one_sided(Verb::Send, true);
  const RemotelogResult slow = run_remotelog(method, persistent_caches(), rdma(), options);
  EXPECT_GT(slow.counts.rnr_naks, 0U);
  // No faster than buffers come back; and a message that waits, waits a whole timer.
  EXPECT_GE(slow.elapsed_ns, 5000.0 * (1000 - 4));
  const double once = price(method, persistent_caches(), rdma(), {}).latency_ns;
  EXPECT_NEAR(static_cast<double>(slow.append.quantile(0.1)) / 1e3, once, once / 64);
  EXPECT_GE(static_cast<double>(slow.append.max()) / 1e3, once + 10'000);

  // A WRITE takes none: it does not feel the server.
  EXPECT_EQ(
      run_remotelog(one_sided(Verb::Write), persistent_caches(), rdma(), options).counts.rnr_naks,
      0U);
  // A buffer more than there are updates: nobody waits.
  options.responder.receive_buffers = 1000;
  EXPECT_EQ(run_remotelog(method, persistent_caches(), rdma(), options).counts.rnr_naks, 0U);
}

// From both sides: the buffer is back a moment before its message arrives, and a moment after.
TEST(RemotelogRun, ABufferIsInTimeOrCostsOneTimer) {
  const Method method = one_sided(Verb::Send, true);
  const double once = price(method, persistent_caches(), rdma(), {}).latency_ns;
  RemotelogOptions options;
  options.records = 2;
  options.responder = {.receive_buffers = 1, .rnr_timer = 10'000};
  // The second message arrives an append after the first, which is visible a DMA write later.
  options.responder.recycle = once - rdma().network.dma_write - 1;
  EXPECT_EQ(run_remotelog(method, persistent_caches(), rdma(), options).counts.rnr_naks, 0U);
  options.responder.recycle += 2;
  const RemotelogResult late = run_remotelog(method, persistent_caches(), rdma(), options);
  EXPECT_EQ(late.counts.rnr_naks, 1U);
  const NetworkHardware& n = rdma().network;
  const double wire = n.wire + n.header_bytes * n.wire_per_byte;
  const double again = 4 * n.rnic + 2 * wire + 64 * n.wire_per_byte + 10'000;
  EXPECT_NEAR(late.elapsed_ns, 2 * once + again, 1e-6);
}

TEST(RemotelogRun, AFullLogIsWaitedForByReadsOfItsHead) {
  RemotelogOptions options;
  options.records = 2000;
  options.responder = {.apply = 10'000, .collect_records = 8, .collect = 500, .log_records = 64};
  const RemotelogResult full =
      run_remotelog(one_sided(Verb::Write), persistent_caches(), rdma(), options);
  EXPECT_GT(full.counts.head_reads, 0U);
  // What is applied sets the pace: 10 us a record, 500 ns more every eighth.
  const double applied = 10'000 + 500.0 / 8;
  EXPECT_NEAR(full.elapsed_ns / 2000, applied, applied * 0.05);
  options.responder.log_records = 2000;
  EXPECT_EQ(
      run_remotelog(one_sided(Verb::Write), persistent_caches(), rdma(), options).counts.head_reads,
      0U);
}

TEST(RemotelogRun, AMessageHandlerThatRecyclesIsBusyWithThatToo) {
  const double once = price(message(), persistent_caches(), rdma(), {}).latency_ns;
  RemotelogOptions options;
  options.records = 1000;
  options.responder = {.receive_buffers = 1024, .recycle = 20'000};
  const RemotelogResult busy = run_remotelog(message(), persistent_caches(), rdma(), options);
  EXPECT_GT(busy.elapsed_ns / 1000, 20'000);
  EXPECT_GT(mean_ns(busy), once);
}

TEST(RemotelogRun, SaysHowManyRecordsAreAppended) {
  std::vector<std::uint64_t> told;
  RemotelogOptions options;
  options.records = 50'000;
  options.progress = [&](std::uint64_t records) { told.push_back(records); };
  run_remotelog(one_sided(Verb::Write), persistent_caches(), rdma(), options);
  EXPECT_EQ(told, (std::vector<std::uint64_t>{16'384, 32'768, 49'152}));
}

TEST(RemotelogRun, OneWhoDoesNotKnowTheDomainFlushesEverywhere) {
  Method method = message();
  method.responder[0].insert(method.responder[0].begin() + 1, {ResponderAction::Kind::Flush, 0});
  RemotelogOptions options;
  options.records = 10;
  const double knows = mean_ns(run_remotelog(method, persistent_caches(), rdma(), options));
  options.flushes_always = true;
  const double always = mean_ns(run_remotelog(method, persistent_caches(), rdma(), options));
  EXPECT_NEAR(always - knows, rdma().server.flush_line + rdma().network.medium_write, 1);
}

}  // namespace
}  // namespace perdure::sim
