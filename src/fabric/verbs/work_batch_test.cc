// What a queue pair is handed, with one that no RNIC made.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/work_batch.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "fabric/verbs/extended.h"

namespace perdure::fabric::verbs {
namespace {

constexpr std::uint32_t kInlineMax = 64;
constexpr std::uint64_t kMessageMax = 4096;
constexpr std::uint32_t kLocalKey = 77;
constexpr std::uint64_t kRemoteKey = 99;

/// One work request as it was posted, in words.
std::string text_of(const ibv_send_wr& work) {
  std::string text = fmt::format("{}: opcode {}, flags {}", work.wr_id,
                                 static_cast<int>(work.opcode), work.send_flags);
  for (int i = 0; i < work.num_sge; ++i) {
    const ibv_sge& piece = work.sg_list[i];
    text += fmt::format(", {:#x}+{} by {}", piece.addr, piece.length, piece.lkey);
  }
  if (work.opcode == IBV_WR_SEND) return text;
  return text + fmt::format(", to {:#x} by {}", work.wr.rdma.remote_addr, work.wr.rdma.rkey);
}

/// A queue pair that notes what it is handed.
class Recorder {
 public:
  Recorder() {
    now_ = this;
    context_.ops.post_send = &Recorder::take;
    queue_pair_.context = &context_;
    extended_.wr_start = [](ibv_qp_ex*) { now_->posts_.push_back({"start"}); };
    extended_.wr_complete = [](ibv_qp_ex*) { return 0; };
#ifdef PERDURE_HAVE_IBV_FLUSH
    extended_.wr_flush = [](ibv_qp_ex* qp, std::uint32_t, std::uint64_t, std::size_t, std::uint8_t,
                            std::uint8_t) {
      now_->posts_.back().push_back(fmt::format("{}: flush", qp->wr_id));
    };
#endif
  }

  ibv_qp* queue_pair() { return &queue_pair_; }
  ibv_qp_ex* extended() { return &extended_; }
  void fail_next(int code) { code_ = code; }
  /// Each post since the last call, and the requests in it.
  std::vector<std::vector<std::string>> taken() { return std::exchange(posts_, {}); }

 private:
  static int take(ibv_qp*, ibv_send_wr* work, ibv_send_wr** refused) {
    if (now_->code_ != 0) {
      *refused = work;
      return std::exchange(now_->code_, 0);
    }
    now_->posts_.emplace_back();
    for (; work != nullptr; work = work->next) now_->posts_.back().push_back(text_of(*work));
    return 0;
  }

  static inline Recorder* now_ = nullptr;
  ibv_context context_{};
  ibv_qp queue_pair_{};
  ibv_qp_ex extended_{};
  int code_ = 0;
  std::vector<std::vector<std::string>> posts_;
};

/// Registered memory of which no RNIC knows: it is never given back.
const Memory* memory() {
  static std::array<std::byte, 2 * kMessageMax> bytes;
  static ibv_mr region{};
  region.lkey = kLocalKey;
  static auto* const registered =
      new VerbsMemory(nullptr, bytes, Owned<ibv_mr>(&region), FlushPlacement::None, DmaDirties::No);
  return registered;
}

QueueLimits queue_limits() {
  QueueLimits limits;
  limits.message_bytes_max = kMessageMax;
  limits.read_segments_max = kSegmentsMax;
  limits.inline_bytes_max = kInlineMax;
  return limits;
}

void prepare(WorkBatch& batch, const QueueLimits& limits = queue_limits()) {
  static ibv_mr region{};
  static std::uint64_t scratch = 0;
  batch.prepare(limits, /*transfer_bytes_max=*/kMessageMax, &region, &scratch);
}

WorkRequest request(Opcode opcode, std::vector<std::size_t> lengths) {
  WorkRequest made;
  made.opcode = opcode;
  made.segment_count = static_cast<std::uint8_t>(lengths.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    made.segments[i] = {memory()->bytes().data() + at, lengths[i], memory()};
    at += lengths[i] + 1;
  }
  made.remote = {kRemoteKey, /*base=*/0x10000, /*length=*/kMessageMax};
  return made;
}

bool fill(WorkBatch& batch, std::size_t at, const WorkRequest& wanted) {
  return wanted.opcode == Opcode::Send ? batch.fill_message(at, wanted)
                                       : batch.fill_access(at, wanted);
}

/// As VerbsEndpoint::post_several does it.
bool fill_anyhow(WorkBatch& batch, std::size_t at, const WorkRequest& wanted, std::uint64_t id) {
  if (!fill(batch, at, wanted) && !(batch.make_ready(at, wanted) && fill(batch, at, wanted)))
    return false;
  batch.number(at, id);
  return true;
}

/// What the general way posts of these.
std::vector<std::vector<std::string>> posted_generally(Recorder& queue,
                                                       const std::vector<WorkRequest>& requests,
                                                       std::uint64_t first) {
  WorkBatch batch;
  prepare(batch);
  for (const WorkRequest& each : requests) {
    batch.add(each, first++, each.signalled, /*message=*/1);
  }
  EXPECT_EQ(batch.post(queue.queue_pair(), nullptr), 0);
  return queue.taken();
}

TEST(WorkBatch, WhatIsReadyMadeIsPostedAsTheGeneralWayPostsIt) {
  // Post: one to three requests at a time, of all looks and lengths, in the same entries; now and
  // then the general way uses these in between.
  Recorder queue;
  WorkBatch batch;
  prepare(batch);
  std::mt19937 random(11);
  constexpr std::array kOpcodes{Opcode::Send, Opcode::Write, Opcode::Read};
  constexpr std::array<std::size_t, 6> kLengths{
      1, 8, kInlineMax / 2, kInlineMax, kInlineMax + 1, kMessageMax / 4};
  for (std::uint64_t round = 0; round < 3000; ++round) {
    std::vector<WorkRequest> requests;
    for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
      std::vector<std::size_t> lengths;
      const std::size_t segments = 1 + random() % kSegmentsMax;
      while (lengths.size() < segments) lengths.push_back(kLengths[random() % kLengths.size()]);
      requests.push_back(request(kOpcodes[random() % kOpcodes.size()], lengths));
      requests.back().signalled = random() % 2 == 0;
      requests.back().fenced = random() % 4 == 0;
      requests.back().remote_offset = random() % 64;
    }
    if (random() % 8 == 0) {
      WorkRequest swap = request(Opcode::CompareSwap, {8});
      for (std::size_t i = 0; i < 3; ++i) batch.add(swap, 0, true, 0);
      ASSERT_EQ(batch.post(queue.queue_pair(), nullptr), 0);
      (void)queue.taken();
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(fill_anyhow(batch, i, requests[i], round + i));
    }
    ASSERT_EQ(batch.post_plain(queue.queue_pair(), requests.size()), 0);
    const auto posted = queue.taken();
    ASSERT_EQ(posted, posted_generally(queue, requests, round)) << "round " << round;
    ASSERT_EQ(posted.size(), 1u) << "one doorbell";
  }
}

TEST(WorkBatch, AnEntryStaysReadyForWhatDiffersInPlaceAndLengthOnly) {
  WorkBatch batch;
  prepare(batch);
  ASSERT_TRUE(batch.make_ready(0, request(Opcode::Write, {8})));
  WorkRequest same = request(Opcode::Write, {kInlineMax});
  same.remote_offset = 100;
  EXPECT_TRUE(batch.fill_access(0, same));

  WorkRequest unsignalled = same;
  unsignalled.signalled = false;
  WorkRequest fenced = same;
  fenced.fenced = true;
  EXPECT_FALSE(batch.fill_access(0, unsignalled));
  EXPECT_FALSE(batch.fill_access(0, fenced));
  EXPECT_FALSE(batch.fill_access(0, request(Opcode::Write, {8, 8})));
  EXPECT_FALSE(batch.fill_access(0, request(Opcode::Read, {8})));
  EXPECT_FALSE(batch.fill_access(0, request(Opcode::Write, {kInlineMax + 1}))) << "not inline";
  EXPECT_FALSE(batch.fill_access(1, same)) << "another entry";
  EXPECT_TRUE(batch.fill_access(0, same));
}

TEST(WorkBatch, WhatNeedsACloserLookIsNeverReadyMade) {
  WorkBatch batch;
  prepare(batch);
  // Also where the entry is ready for one that looks the same.
  const auto refuses = [&](const WorkRequest& wanted) {
    if (fill_anyhow(batch, 0, wanted, 0)) return false;
    WorkRequest same = wanted;
    for (Segment& segment : same.segments) segment.length = 8;
    (void)batch.make_ready(0, same);
    return !fill_anyhow(batch, 0, wanted, 0);
  };
  EXPECT_TRUE(refuses(request(Opcode::Send, {}))) << "empty";
  EXPECT_TRUE(refuses(request(Opcode::Write, {0}))) << "to an RNIC 0 is 2 GiB";
  EXPECT_TRUE(refuses(request(Opcode::Send, {0, 8})));
  EXPECT_TRUE(refuses(request(Opcode::Send, {8, 0})));
  EXPECT_TRUE(refuses(request(Opcode::Send, {8, 8, 0})));
  EXPECT_TRUE(refuses(request(Opcode::Write, {kMessageMax + 1}))) << "in several entries";
  EXPECT_TRUE(refuses(request(Opcode::Write, {kMessageMax, 1})));
  EXPECT_TRUE(refuses(request(Opcode::WriteImm, {8})));
  EXPECT_TRUE(refuses(request(Opcode::CompareSwap, {8})));
  EXPECT_TRUE(refuses(request(Opcode::Flush, {})));

  WorkRequest beyond = request(Opcode::Write, {8});
  beyond.remote_offset = beyond.remote.length - 7;
  EXPECT_TRUE(refuses(beyond));
  beyond.remote_offset = beyond.remote.length + 1;
  EXPECT_TRUE(refuses(beyond));
  WorkRequest unregistered = request(Opcode::Send, {8, 8});
  unregistered.segments[1].memory = nullptr;
  EXPECT_TRUE(refuses(unregistered));
  unregistered = request(Opcode::Send, {8});
  unregistered.segments[0].memory = nullptr;
  EXPECT_TRUE(refuses(unregistered));
  WorkRequest malformed = request(Opcode::Send, {8, 8, 8});
  malformed.segment_count = kSegmentsMax + 1;
  EXPECT_TRUE(refuses(malformed));
}

TEST(WorkBatch, OnIwarpNoReadIsReadyMade) {
  QueueLimits limits = queue_limits();
  limits.reads_in_order = false;
  limits.read_segments_max = 1;
  WorkBatch batch;
  prepare(batch, limits);
  EXPECT_FALSE(fill_anyhow(batch, 0, request(Opcode::Read, {8}), 0));
  EXPECT_TRUE(fill_anyhow(batch, 0, request(Opcode::Write, {8}), 0));
}

TEST(WorkBatch, WithoutInlineDataAllLengthsAreOne) {
  QueueLimits limits = queue_limits();
  limits.inline_bytes_max = 0;
  Recorder queue;
  WorkBatch batch;
  prepare(batch, limits);
  ASSERT_TRUE(fill_anyhow(batch, 0, request(Opcode::Write, {1}), 5));
  EXPECT_TRUE(batch.fill_access(0, request(Opcode::Write, {kMessageMax})));
  ASSERT_EQ(batch.post_plain(queue.queue_pair(), 1), 0);
  const std::string expected =
      fmt::format("5: opcode {}, flags {}, {:#x}+{} by {}, to 0x10000 by {}",
                  static_cast<int>(IBV_WR_RDMA_WRITE), static_cast<unsigned>(IBV_SEND_SIGNALED),
                  reinterpret_cast<std::uintptr_t>(memory()->bytes().data()), kMessageMax,
                  kLocalKey, kRemoteKey);
  EXPECT_EQ(queue.taken(), (std::vector<std::vector<std::string>>{{expected}}));
}

TEST(WorkBatch, AFailedPostIsSaidAndLeavesTheNextOneWhole) {
  Recorder queue;
  WorkBatch batch;
  prepare(batch);
  const std::vector<WorkRequest> requests{request(Opcode::Write, {8}),
                                          request(Opcode::Send, {8, 8})};
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(fill_anyhow(batch, i, requests[i], i));
  queue.fail_next(ENOMEM);
  EXPECT_EQ(batch.post_plain(queue.queue_pair(), 1), ENOMEM);
  EXPECT_TRUE(queue.taken().empty());
  ASSERT_EQ(batch.post_plain(queue.queue_pair(), 2), 0);
  const auto posted = queue.taken();
  EXPECT_EQ(posted, posted_generally(queue, requests, 0));
  EXPECT_TRUE(batch.empty());
}

#ifdef PERDURE_HAVE_IBV_FLUSH
TEST(WorkBatch, AFlushUsesTheBuilderInterfaceAndTheOthersStayAroundIt) {
  Recorder queue;
  WorkBatch batch;
  prepare(batch);
  const WorkRequest write = request(Opcode::Write, {8});
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(fill_anyhow(batch, i, write, i));
  WorkRequest flush = request(Opcode::Flush, {});
  flush.flush_length = 8;
  batch.add(write, 10, false, 0);
  batch.add(flush, 11, true, 0);
  batch.add(write, 12, false, 0);
  ASSERT_EQ(batch.post(queue.queue_pair(), queue.extended()), 0);
  const auto posted = queue.taken();
  ASSERT_EQ(posted.size(), 3u);
  EXPECT_EQ(posted[0].size(), 1u);
  EXPECT_EQ(posted[1], (std::vector<std::string>{"start", "11: flush"}));
  EXPECT_EQ(posted[2].size(), 1u);
  // None of what the general way left there is taken for ready.
  for (std::size_t i = 0; i < 3; ++i) EXPECT_FALSE(batch.fill_access(i, write));
}
#endif

}  // namespace
}  // namespace perdure::fabric::verbs
#endif
