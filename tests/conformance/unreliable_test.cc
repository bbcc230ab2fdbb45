// Queue pairs that lose what is posted, uc and ud, over a link that loses nothing and over one that
// does. They run on the emulated fabric in one process, in a world; what runs between processes,
// and every real fabric here, makes reliable connections alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "core/bytes.h"
#include "fabric/emu/live_device.h"
#include "fabric/emu/world.h"

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Completion;
using fabric::Opcode;
using fabric::WorkRequest;

constexpr std::size_t kBytes = 256 * 1024;
constexpr std::size_t kSlot = 512;  // of one message or WRITE
constexpr std::uint64_t kRequests = 300;
constexpr std::size_t kBuffers = 64;  // for messages that come

struct Row {
  QpType type = QpType::Uc;
  bool lossy = false;
};

std::string row_name(const testing::TestParamInfo<Row>& info) {
  return fmt::format("emu_{}{}", to_string(info.param.type), info.param.lossy ? "_lossy" : "");
}

/// Bytes that are different in each request and each line.
std::byte value(std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at / 64 * 7 + 1);
}

class Unreliable : public testing::TestWithParam<Row> {
 protected:
  Unreliable()
      : client_(world_.add_machine("client", profile())),
        server_(world_.add_machine("server", profile())),
        region_(server_.add_region(kBytes)),
        source_(kBytes) {
    std::tie(end_, server_end_) =
        world_.connect(client_, server_, {.send_depth = 16, .receive_depth = 2 * kBuffers});
    memory_ = std::move(*server_.register_memory(region_.bytes(), Access::RemoteReadWrite));
    local_ = std::move(*client_.register_memory(source_, Access::Local));
    if (GetParam().lossy) world_.set_link(client_, server_, fabric::emu::LinkState::Lossy);
  }

  ServerProfile profile() const {
    ServerProfile profile;
    profile.domain = PersistenceDomain::Wsp;
    profile.transport = Transport::InfiniBand;
    profile.write_order = WriteOrder::Ordered;
    profile.qp_type = GetParam().type;
    profile.capabilities = {
        .native_flush = true, .atomic_write = true, .ordered_persist = true, .send_flush = true};
    return profile;
  }

  /// Places that messages come to are the first half of the region, those of WRITEs the other.
  std::byte* inbox(std::uint64_t buffer) {
    return region_.bytes().data() + buffer % kBuffers * kSlot;
  }
  std::uint64_t place(std::uint64_t number) const {
    return kBytes / 2 + number * kSlot % (kBytes / 2);
  }
  void offer(std::uint64_t buffer) {
    ASSERT_TRUE(server_end_->post_receive({inbox(buffer), kSlot, memory_.get()}, buffer).ok());
  }

  WorkRequest request(Opcode opcode, std::uint64_t number, std::size_t length = kSlot) {
    std::byte* const from = source_.data() + number % 128 * kSlot;
    for (std::size_t at = 0; at < std::min(length, kSlot); ++at) from[at] = value(number, at);
    if (length >= sizeof number) std::memcpy(from, &number, sizeof number);
    WorkRequest work;
    work.opcode = opcode;
    work.context = number;
    work.remote = {memory_->key(), memory_->base(), kBytes};
    work.remote_offset = place(number);
    work.flush_length = 64;
    const bool names =
        opcode == Opcode::Flush || opcode == Opcode::SendFlush || opcode == Opcode::AtomicWrite;
    if (!names) {
      work.segments[0] = {from, length, local_.get()};
      work.segment_count = 1;
    }
    return work;
  }

  void step() {
    std::array<Completion, 16> some;
    const std::size_t here = end_->poll(some);
    completed_.insert(completed_.end(), some.begin(), some.begin() + std::ptrdiff_t(here));
    const std::size_t there = server_end_->poll(some);
    for (std::size_t index = 0; index < there; ++index) {
      if (some[index].opcode != Opcode::Receive) continue;
      note_received(some[index]);
      if (offers_) offer(some[index].context);
    }
  }

  /// A message is there, whole.
  void note_received(const Completion& completion) {
    ASSERT_FALSE(completion.error.has_value());
    if (completion.has_immediate) return received_.push_back(completion.immediate);
    const std::byte* const bytes = inbox(completion.context);
    const auto number = load<std::uint64_t>(bytes);
    ASSERT_LT(number, kRequests);
    ASSERT_EQ(completion.length, kSlot);
    for (std::size_t at = sizeof number; at < kSlot; ++at) {
      ASSERT_EQ(bytes[at], value(number, at)) << "message " << number << ", byte " << at;
    }
    received_.push_back(number);
  }

  /// Posts so many, and polls until nothing comes any more. No more are in flight than there are
  /// buffers for: what finds none is lost.
  void run(Opcode opcode, std::uint64_t requests = kRequests) {
    for (std::uint64_t number = 0; number < requests;) {
      const std::uint64_t end = std::min<std::uint64_t>(requests, number + kBuffers);
      while (number < end) {
        WorkRequest work = request(opcode, number);
        work.immediate = static_cast<std::uint32_t>(number);
        const auto taken = end_->post({&work, 1});
        ASSERT_TRUE(taken.ok()) << taken.error().message;
        number += *taken;
        if (*taken == 1 && number % 8 != 0) continue;  // several are on their way
        step();
        if (testing::Test::HasFatalFailure()) return;
      }
      quiesce();
    }
  }

  /// Polls until nothing is on its way, and every buffer that was filled is offered again.
  void quiesce() {
    for (std::size_t seen = received_.size() + 1; seen != received_.size();) {
      seen = received_.size();
      ASSERT_TRUE(world_.settle());
      for (std::size_t polls = 0; polls < 2 * kBuffers; ++polls) step();
    }
  }

  bool keeps_order() const { return std::is_sorted(received_.begin(), received_.end()); }

  Random random_{17};
  fabric::emu::World world_{random_};
  fabric::emu::Machine& client_;
  fabric::emu::Machine& server_;
  pmem::CrashableRegion& region_;
  std::vector<std::byte> source_;
  std::unique_ptr<fabric::Memory> memory_;
  std::unique_ptr<fabric::Memory> local_;
  std::unique_ptr<fabric::Endpoint> end_;
  std::unique_ptr<fabric::Endpoint> server_end_;
  std::vector<Completion> completed_;
  std::vector<std::uint64_t> received_;
  bool offers_ = true;  // a buffer again for each that was filled
};

TEST_P(Unreliable, EverythingCompletesInOrderWhateverBecameOfIt) {
  for (std::uint64_t buffer = 0; buffer < kBuffers; ++buffer) offer(buffer);
  run(Opcode::Send);
  ASSERT_EQ(completed_.size(), kRequests);
  for (std::uint64_t number = 0; number < kRequests; ++number) {
    EXPECT_EQ(completed_[number].context, number);
    EXPECT_FALSE(completed_[number].error.has_value());
  }
  EXPECT_TRUE(end_->connected() && server_end_->connected());
}

// That it is whole, note_received looks at.
TEST_P(Unreliable, AMessageComesOnceAndWholeOrNotAtAll) {
  for (std::uint64_t buffer = 0; buffer < kBuffers; ++buffer) offer(buffer);
  run(Opcode::Send);
  std::vector<std::uint64_t> once = received_;
  std::sort(once.begin(), once.end());
  EXPECT_EQ(std::adjacent_find(once.begin(), once.end()), once.end());
  if (!GetParam().lossy) {
    EXPECT_EQ(once.size(), kRequests);
    return;
  }
  EXPECT_GT(once.size(), kRequests / 2);
  EXPECT_LT(once.size(), kRequests) << "nothing was lost";
}

TEST_P(Unreliable, OnlyUcKeepsMessagesInOrder) {
  for (std::uint64_t buffer = 0; buffer < kBuffers; ++buffer) offer(buffer);
  run(Opcode::Send);
  EXPECT_EQ(keeps_order(), GetParam().type == QpType::Uc);
}

// Receive: more messages than there are buffers. Expect: so many come, the rest are lost without a
// word, and what is sent to a new buffer comes.
TEST_P(Unreliable, WhatFindsNoReceiveBufferIsLostAndTheConnectionGoesOn) {
  offers_ = false;
  for (std::uint64_t buffer = 0; buffer < 4; ++buffer) offer(buffer);
  run(Opcode::Send, 100);
  EXPECT_EQ(received_.size(), 4u);
  EXPECT_EQ(completed_.size(), 100u);
  ASSERT_TRUE(end_->connected());
  offer(4);
  run(Opcode::Send, 100);
  EXPECT_EQ(received_.size(), 5u);
}

TEST_P(Unreliable, WritesOverUcArePlacedFromTheirStart) {
  if (GetParam().type != QpType::Uc) GTEST_SKIP() << "carries SENDs alone";
  constexpr std::uint64_t kWrites = kBytes / 2 / kSlot;  // each has a place of its own
  run(Opcode::Write, kWrites);
  ASSERT_EQ(completed_.size(), kWrites);
  std::uint64_t whole = 0;
  std::uint64_t parts = 0;
  for (std::uint64_t number = 0; number < kWrites; ++number) {
    const std::byte* const at = region_.bytes().data() + place(number);
    const auto there = [&](std::size_t byte) { return at[byte] == value(number, byte); };
    std::size_t bytes = sizeof number;
    if (load<std::uint64_t>(at) == number) {
      while (bytes < kSlot && there(bytes)) ++bytes;
    }
    whole += bytes == kSlot ? 1 : 0;
    parts += bytes > 64 && bytes < kSlot ? 1 : 0;
    // Expect: zeros behind the first packets that came.
    for (std::size_t byte = bytes; byte < kSlot; ++byte) {
      ASSERT_EQ(at[byte], std::byte{0}) << "WRITE " << number << ", byte " << byte;
    }
  }
  if (!GetParam().lossy) {
    EXPECT_EQ(whole, kWrites);
    return;
  }
  EXPECT_LT(whole, kWrites) << "nothing was lost";
  EXPECT_GT(parts, 0u) << "none was lost in the middle";
}

// A WRITE_WITH_IMM that is received has all its bytes in place; in order with the others.
TEST_P(Unreliable, AnImmediateOverUcSpeaksOfItsOwnBytes) {
  if (GetParam().type != QpType::Uc) GTEST_SKIP() << "carries SENDs alone";
  for (std::uint64_t buffer = 0; buffer < kBuffers; ++buffer) offer(buffer);
  constexpr std::uint64_t kWrites = kBytes / 2 / kSlot;
  run(Opcode::WriteImm, kWrites);
  EXPECT_TRUE(keeps_order());
  EXPECT_EQ(received_.size() == kWrites, !GetParam().lossy);
  for (const std::uint64_t number : received_) {
    const std::byte* const at = region_.bytes().data() + place(number);
    ASSERT_EQ(load<std::uint64_t>(at), number);
    for (std::size_t byte = sizeof number; byte < kSlot; ++byte) {
      ASSERT_EQ(at[byte], value(number, byte)) << "WRITE_WITH_IMM " << number;
    }
  }
}

TEST_P(Unreliable, WhatIsNotCarriedIsRefusedByNameAndTheConnectionGoesOn) {
  const std::string type(to_string(GetParam().type));
  const bool uc = GetParam().type == QpType::Uc;
  struct Case {
    Opcode opcode;
    bool carried;
  };
  for (const Case& each :
       {Case{Opcode::Send, true}, Case{Opcode::Write, uc}, Case{Opcode::WriteImm, uc},
        Case{Opcode::Read, false}, Case{Opcode::Flush, false}, Case{Opcode::SendFlush, false},
        Case{Opcode::AtomicWrite, false}, Case{Opcode::CompareSwap, false},
        Case{Opcode::FetchAdd, false}, Case{Opcode::WritePersist, false}}) {
    SCOPED_TRACE(to_string(each.opcode));
    const bool word = each.opcode == Opcode::CompareSwap || each.opcode == Opcode::FetchAdd;
    const WorkRequest work = request(each.opcode, 1, word ? 8 : kSlot);
    const auto taken = end_->post({&work, 1});
    EXPECT_EQ(taken.ok(), each.carried);
    EXPECT_TRUE(end_->connected());
    if (taken.ok()) continue;
    EXPECT_EQ(taken.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(taken.error().message.find("not carried over " + type), std::string::npos)
        << taken.error().message;
  }
}

TEST_P(Unreliable, ADatagramIsOnePacket) {
  const bool one_packet = GetParam().type == QpType::Ud;
  for (const std::uint64_t length : {kDatagramBytesMax, kDatagramBytesMax + 1}) {
    const WorkRequest work = request(Opcode::Send, 1, length);
    const auto taken = end_->post({&work, 1});
    EXPECT_EQ(taken.ok(), !one_packet || length <= kDatagramBytesMax);
    if (taken.ok()) continue;
    EXPECT_NE(taken.error().message.find("4097 bytes; one packet takes 4096"), std::string::npos)
        << taken.error().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Providers, Unreliable,
                         testing::Values(Row{QpType::Uc, false}, Row{QpType::Uc, true},
                                         Row{QpType::Ud, false}, Row{QpType::Ud, true}),
                         row_name);

// Between processes the wire is a socket, which loses nothing.
TEST(UnreliableDevices, WhatRunsBetweenProcessesRefusesThemByName) {
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    fabric::emu::LiveOptions options;
    options.profile.transport = Transport::InfiniBand;
    options.profile.qp_type = type;
    const auto opened = fabric::emu::LiveDevice::open(options);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.code(), ErrorCode::Unsupported);
    EXPECT_NE(opened.error().message.find(to_string(type)), std::string::npos)
        << opened.error().message;
  }
}

// The table that planner and checker refuse by.
TEST(UnreliableDevices, TransportsWithoutQueuePairsThatLoseHaveNone) {
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    for (const Transport transport : {Transport::Tcp, Transport::Shm, Transport::Iwarp}) {
      EXPECT_FALSE(has_qp_type(transport, type)) << to_string(transport);
    }
    EXPECT_TRUE(has_qp_type(Transport::InfiniBand, type));
    EXPECT_TRUE(has_qp_type(Transport::Roce, type));
  }
}

}  // namespace
}  // namespace perdure::conformance
