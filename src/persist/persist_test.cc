// Messages decode to what was encoded and nothing else; a responder refuses nonsense and executes
// nothing of it; a requester turns every failure into one of the contract's errors.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "persist/wire.h"
#include "plan/plan.h"
#include "pmem/crashable_region.h"
#include "pmem/window_region.h"
#include "testing/limited_device.h"

namespace perdure::persist {
namespace {

std::vector<std::byte> message_of(const MessageHeader& header, const std::vector<Entry>& entries,
                                  const std::string& payload) {
  std::vector<std::byte> bytes(header.bytes() + payload.size());
  const auto text = std::as_bytes(std::span(payload));
  for (std::size_t i = 0; i < entries.size(); ++i) put_entry(bytes.data(), i, entries[i]);
  encode_message(header, std::span(&text, 1), bytes.data());
  std::copy(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(header.bytes()));
  return bytes;
}

MessageHeader header_of(std::uint64_t sequence, std::uint32_t payload_bytes) {
  MessageHeader header;
  header.entries = 1;
  header.flags = kAckWanted | kPayloadCrc;
  header.sequence = sequence;
  header.payload_bytes = payload_bytes;
  header.session = 7;
  return header;
}

TEST(Wire, AMessageReadsBackAndAnyFlippedBitIsSeen) {
  const auto bytes = message_of(header_of(3, 5), {{4096, 5, kCopy | kFlush}}, "hello");
  const auto decoded = decode_message(bytes);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->sequence, 3u);
  EXPECT_EQ(entry_at(bytes, 0).offset, 4096u);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_message(flipped).ok()) << "bit " << bit;
  }
}

TEST(Wire, AMessageCutShortIsRefusedAtEveryLength) {
  const auto bytes = message_of(header_of(1, 5), {{0, 5, kCopy}}, "hello");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_message(std::span(bytes).first(length)).ok()) << length;
  }
}

TEST(Wire, AnAckReadsBackAndAnyFlippedBitIsSeen) {
  std::array<std::byte, kAckBytes> bytes;
  encode_ack({2, 99, 7, 11}, bytes.data());
  EXPECT_EQ(decode_ack(bytes)->sequence, 99u);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_ack(flipped).ok()) << "bit " << bit;
  }
}

TEST(Wire, AWatermarkKeepsSessionAndSequence) {
  const Watermark mark = decode_watermark(encode(Watermark{0xabcdef, 1000000000123}));
  EXPECT_EQ(mark.session, 0xabcdefu);
  EXPECT_EQ(mark.applied, 1000000000123u);
}

/// A responder with a pool, and the bare other end of its connection.
class ResponderTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kExported = 8192;
  static constexpr std::size_t kDepth = 32;
  static constexpr std::uint64_t kRegion = kExported + 64 * 1024;
  static constexpr std::uint32_t kLookAlike = 7 | 1u << 24;  // to a watermark the same as 7

  void SetUp() override { open(true); }

  void open(bool may_write, int registrations = 100) {
    profile_.domain = PersistenceDomain::Dmp;
    profile_.transport = Transport::InfiniBand;
    server_ = &world_.add_machine("server", profile_, switches_);
    client_ = &world_.add_machine("client", profile_);
    region_ = &server_->add_region(kRegion);
    auto ends = world_.connect(*client_, *server_);
    near_ = std::move(ends.first);
    far_ = std::move(ends.second);
    Responder::Options options;
    options.exported = {0, kExported};
    options.queue = {kDepth, 1024};
    options.session = 7;
    options.may_write = may_write;
    options.flushes_writes = flushes_writes_;
    if (keeps_messages_) {
      options.session = kLookAlike;
      options.persistent_buffers = {kExported, options.queue.persistent_bytes()};
    }
    responder_.reset();
    device_ = std::make_unique<test::LimitedDevice>(*server_, registrations);
    auto responder = Responder::open(*far_, *device_, *region_, options);
    ASSERT_TRUE(responder.ok());
    responder_ = std::move(responder).value();
    buffer_memory_ = *client_->register_memory(buffer_, fabric::Access::Local);
    many_memory_ =
        *client_->register_memory(std::as_writable_bytes(std::span(many_)), fabric::Access::Local);
  }

  /// Sends bytes as a message and lets the responder handle it.
  Result<std::size_t> deliver(const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), buffer_.begin());
    fabric::WorkRequest request;
    request.segments[0] = {buffer_.data(), bytes.size(), buffer_memory_.get()};
    request.segment_count = 1;
    EXPECT_TRUE(near_->post(std::span<const fabric::WorkRequest>(&request, 1)).ok());
    for (int round = 0; round < 1000; ++round) {
      auto handled = responder_->pump();
      if (!handled.ok() || *handled != 0) return handled;
      (void)world_.step();
    }
    return std::size_t{0};
  }

  /// Sends messages of five bytes, numbered from `first` on, and lets nobody handle them. Returns
  /// how many have found a receive buffer by the time that nothing more happens.
  std::uint64_t send(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t sequence = first; sequence < first + count; ++sequence) {
      const auto bytes =
          message_of(header_of(sequence, 5), {{sequence * 8, 5, kCopy | kFlush}}, "hello");
      std::copy(bytes.begin(), bytes.end(), many_[sequence % many_.size()].begin());
      fabric::WorkRequest request;
      request.segments[0] = {many_[sequence % many_.size()].data(), bytes.size(),
                             many_memory_.get()};
      request.segment_count = 1;
      EXPECT_TRUE(near_->post(std::span<const fabric::WorkRequest>(&request, 1)).ok());
    }
    return sent();
  }

  std::uint64_t sent() {
    std::uint64_t found = 0;
    fabric::Completion completion;
    for (int round = 0; round < 10000; ++round) {
      (void)world_.step();
      found += near_->poll({&completion, 1});
    }
    return found;
  }

  Random random_{5};
  fabric::emu::World world_{random_};
  ServerProfile profile_;
  bool flushes_writes_ = true;
  bool keeps_messages_ = false;  // in persistent receive buffers, as session kLookAlike
  fabric::emu::RnicSwitches switches_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<test::LimitedDevice> device_;
  std::unique_ptr<Responder> responder_;
  std::array<std::byte, 2048> buffer_{};
  std::unique_ptr<fabric::Memory> buffer_memory_;
  std::array<std::array<std::byte, 256>, 64> many_{};
  std::unique_ptr<fabric::Memory> many_memory_;
};

TEST_F(ResponderTest, ASessionHasFewReceiveBuffersUntilItsFirstMessage) {
  // Send: more than fit, unhandled. Expect: they wait at the requester for a buffer.
  EXPECT_EQ(send(1, 32), kIdleReceiveBuffers);
  // Handle the first. Expect: the whole queue is there, and nothing was lost.
  EXPECT_EQ(*responder_->pump(), kIdleReceiveBuffers);
  EXPECT_EQ(sent(), 32 - kIdleReceiveBuffers);
  EXPECT_EQ(send(33, 32), kDepth - (32 - kIdleReceiveBuffers));
}

TEST_F(ResponderTest, WithoutMemoryForTheWholeQueueTheSessionGoesOnWithFewBuffers) {
  open(true, 2);  // the first buffers and the acknowledgements
  std::uint64_t found = send(1, 32);
  std::uint64_t handled = 0;
  for (int round = 0; round < 100 && handled < 32; ++round) {
    EXPECT_LE(found, kIdleReceiveBuffers);
    const auto pumped = responder_->pump();
    ASSERT_TRUE(pumped.ok()) << pumped.error().message;
    handled += *pumped;
    found = sent();
  }
  EXPECT_EQ(handled, 32u);
  EXPECT_EQ(responder_->counters().copied_bytes, 32u * 5);
}

TEST_F(ResponderTest, CopiesFlushesAndCounts) {
  const auto handled = deliver(message_of(header_of(1, 5), {{100, 5, kCopy | kFlush}}, "hello"));
  ASSERT_TRUE(handled.ok());
  EXPECT_EQ(std::memcmp(region_->bytes().data() + 100, "hello", 5), 0);
  EXPECT_TRUE(region_->is_durable({100, 5}));
  EXPECT_EQ(responder_->counters().messages, 1u);
  EXPECT_EQ(responder_->counters().acks, 1u);
}

// The length is what is flushed, so an RNIC that reports none must not be acknowledged by.
TEST_F(ResponderTest, AnImmediateWithoutALengthIsAProtocolErrorAndNotAcknowledged) {
  for (const bool without : {false, true}) {
    switches_.immediate_without_length = without;
    open(true);
    const auto pool = *server_->register_memory(region_->bytes().first(kExported),
                                                fabric::Access::RemoteReadWrite);
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::WriteImm;
    request.remote = {pool->key(), pool->base(), kExported};
    request.remote_offset = 128;
    request.segments[0] = {buffer_.data(), 100, buffer_memory_.get()};
    request.segment_count = 1;
    request.immediate = encode_immediate(128, true);
    ASSERT_TRUE(
        near_->post_receive({buffer_.data() + 256, kAckBytes, buffer_memory_.get()}, 1).ok());
    ASSERT_TRUE(near_->post({&request, 1}).ok());
    sent();
    const auto handled = responder_->pump();
    EXPECT_EQ(handled.ok(), !without);
    if (without) {
      EXPECT_EQ(handled.code(), ErrorCode::ProtocolError);
    }
    sent();
    const auto ack = decode_ack({buffer_.data() + 256, kAckBytes});
    ASSERT_TRUE(ack.ok()) << ack.error().message;
    EXPECT_EQ(ack->status != 0, without);
    EXPECT_EQ(ack->sequence, without ? 0u : 1u);
    EXPECT_EQ(ack->written, without ? 0u : 100u);
    EXPECT_EQ(responder_->counters().refused, without ? 1u : 0u);
    EXPECT_EQ(responder_->counters().flush_calls, without ? 0u : 1u);
  }
}

// A completion may also say too little: then too little is flushed. The responder can not know, so
// it answers what it was told, and the requester compares.
class ImmediateLengths : public ResponderTest {
 protected:
  void SetUp() override {}

  /// A connection on which the responder's RNIC says so many bytes too few.
  void open_with_missing(std::uint64_t bytes) {
    requester_.reset();
    switches_.immediate_bytes_missing = bytes;
    open(true);
    pool_ = *server_->register_memory(region_->bytes().first(kExported),
                                      fabric::Access::RemoteReadWrite);
    Requester::Options options;
    options.remote = {pool_->key(), pool_->base(), kExported};
    options.queue = {kDepth, 1024};
    options.session = 7;
    options.updates_max = 8;
    plan::Update update;
    update.shape = singleton();
    update.primary = Primary::WriteImm;
    const auto by_immediate = plan::plan(profile_, update);
    update.primary = Primary::Send;
    const auto by_message = plan::plan(profile_, update);
    ASSERT_TRUE(by_immediate.ok() && by_message.ok());
    auto requester =
        Requester::open(*near_, *client_, profile_, {*by_immediate, *by_message}, options);
    ASSERT_TRUE(requester.ok()) << requester.error().message;
    requester_ = std::move(*requester);
  }
  Result<std::uint64_t> begin(std::size_t method, std::uint64_t at, std::size_t length) {
    const UpdateItem item{at, {buffer_.data(), length, buffer_memory_.get()}};
    return requester_->begin(method, std::span(&item, 1));
  }
  /// Until all has resolved or something is wrong.
  Result<void> answered() {
    Result<void> polled;
    for (int round = 0; round < 10000; ++round) {
      (void)responder_->pump();
      polled = requester_->poll();
      if (!polled.ok() || requester_->resolved() == requester_->begun()) break;
    }
    return polled;
  }

  std::unique_ptr<fabric::Memory> pool_;
  std::unique_ptr<Requester> requester_;
};

TEST_F(ImmediateLengths, TooLittleIsAProtocolErrorAndNotTakenForDurable) {
  for (const std::uint64_t missing : {0u, 1u, 64u, 1000u}) {
    open_with_missing(missing);
    ASSERT_TRUE(begin(0, 128, 300).ok());
    const auto polled = answered();
    EXPECT_EQ(polled.ok(), missing == 0) << missing;
    EXPECT_EQ(requester_->resolved(), missing == 0 ? 1u : 0u) << missing;
    if (missing != 0) {
      EXPECT_EQ(polled.code(), ErrorCode::ProtocolError) << missing;
    }
  }
}

TEST_F(ImmediateLengths, AreRightOverManyUpdatesOfBothKinds) {
  open_with_missing(0);
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t together = 1 + random.below(8);
    for (std::uint64_t each = 0; each < together; ++each) {
      const auto begun = begin(random.below(2), 64 * random.below(64), 1 + random.below(500));
      ASSERT_TRUE(begun.ok()) << begun.error().message;
    }
    const auto polled = answered();
    ASSERT_TRUE(polled.ok()) << round << ": " << polled.error().message;
    ASSERT_EQ(requester_->resolved(), requester_->begun());
  }
}

// A responder of an older build says nothing of lengths.
TEST(Wire, AnAckThatSaysNothingOfLengthsReadsAsZero) {
  std::array<std::byte, kAckBytes> bytes;
  encode_ack({0, 99, 7, 0}, bytes.data());
  EXPECT_EQ(decode_ack(bytes)->written, 0u);
  encode_ack({0, 99, 7, 12345}, bytes.data());
  EXPECT_EQ(decode_ack(bytes)->written, 12345u);
}

// It needs no key of the pool where it travels in a message.
TEST_F(ResponderTest, AnImmediateOfOneWhoMayOnlyReadIsRefusedAndFlushesNothing) {
  open(false);
  const auto pool =
      *server_->register_memory(region_->bytes().first(kExported), fabric::Access::RemoteReadWrite);
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::WriteImm;
  request.remote = {pool->key(), pool->base(), kExported};
  request.segments[0] = {buffer_.data(), 100, buffer_memory_.get()};
  request.segment_count = 1;
  request.immediate = encode_immediate(0, true);
  ASSERT_TRUE(near_->post({&request, 1}).ok());
  sent();
  EXPECT_EQ(responder_->pump().code(), ErrorCode::PermissionDenied);
  EXPECT_EQ(responder_->counters().flush_calls, 0u);
}

// Where visible means durable a message asks for no flush: the region may be another's by then, or
// have lost the page that the bytes went to. Expect: it is asked, and nothing is acknowledged.
TEST_F(ResponderTest, WhatIsOnlyCopiedIsNotAcknowledgedWhereTheRegionHasFailed) {
  for (const bool fails : {false, true}) {
    open(true);
    if (fails) region_->refuse_flushes(ErrorCode::SystemError, 1, random_);
    const auto handled = deliver(message_of(header_of(1, 5), {{100, 5, kCopy}}, "hello"));
    EXPECT_EQ(handled.ok(), !fails);
  }
}

// A part of a region, as durable RPC has it.
TEST(WindowRegion, AFlushOfNothingAsksTheRegionBehindIt) {
  Random random(1);
  auto region = *pmem::CrashableRegion::open({.bytes = 8192, .domain = PersistenceDomain::Mhp});
  pmem::WindowRegion window(*region, {4096, 4096});
  EXPECT_TRUE(window.flush({}).ok());
  region->refuse_flushes(ErrorCode::SystemError, 1, random);
  EXPECT_EQ(window.flush({}).code(), ErrorCode::SystemError);
}

TEST_F(ResponderTest, MemoryOutsideThePoolIsRefusedCountedAndNotTouched) {
  for (const std::uint64_t offset :
       {kExported - 4, kExported, std::uint64_t{1} << 40, UINT64_MAX - 2}) {
    SetUp();
    const auto handled = deliver(message_of(header_of(1, 5), {{offset, 5, kCopy}}, "hello"));
    EXPECT_EQ(handled.code(), ErrorCode::OutOfRange) << offset;
    EXPECT_EQ(responder_->counters().refused, 1u);
    EXPECT_EQ(responder_->counters().copied_bytes, 0u);
  }
}

// Two messages come in one burst, and the second is refused. Expect: the answer does not count the
// first, which nobody has flushed; a requester would take it for durable.
TEST_F(ResponderTest, ARefusalDoesNotAcknowledgeWhatWasNotFlushed) {
  const auto post = [&](std::size_t slot, const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), many_[slot].begin());
    fabric::WorkRequest request;
    request.segments[0] = {many_[slot].data(), bytes.size(), many_memory_.get()};
    request.segment_count = 1;
    EXPECT_TRUE(near_->post(std::span<const fabric::WorkRequest>(&request, 1)).ok());
  };
  ASSERT_TRUE(near_->post_receive({buffer_.data(), kAckBytes, buffer_memory_.get()}, 1).ok());
  post(1, message_of(header_of(1, 5), {{100, 5, kCopy | kFlush}}, "hello"));
  post(2, message_of(header_of(2, 5), {{UINT64_MAX - 2, 5, kCopy}}, "hello"));
  sent();
  EXPECT_EQ(responder_->pump().code(), ErrorCode::OutOfRange);
  sent();
  const auto ack = decode_ack({buffer_.data(), kAckBytes});
  ASSERT_TRUE(ack.ok()) << ack.error().message;
  EXPECT_NE(ack->status, 0);
  EXPECT_FALSE(region_->is_durable({100, 5}));
  EXPECT_EQ(ack->sequence, 0u);
}

TEST_F(ResponderTest, ASessionThatMayOnlyReadChangesNothingByMessage) {
  open(false);
  const auto handled = deliver(message_of(header_of(1, 5), {{100, 5, kCopy}}, "hello"));
  EXPECT_EQ(handled.code(), ErrorCode::PermissionDenied);
  EXPECT_EQ(responder_->counters().refused, 1u);
  EXPECT_EQ(responder_->counters().copied_bytes, 0u);
  EXPECT_EQ(region_->bytes()[100], std::byte{0});
}

// A medium whose pages stay clean under the RNIC: a flush of what came by WRITE would be a lie.
TEST_F(ResponderTest, AFlushOfWhatNoMessageCopiedIsRefusedWhereItWouldWriteNothing) {
  flushes_writes_ = false;
  const auto first = [](const std::vector<Entry>& entries, const std::string& payload) {
    MessageHeader header = header_of(1, static_cast<std::uint32_t>(payload.size()));
    header.entries = static_cast<std::uint8_t>(entries.size());
    return message_of(header, entries, payload);
  };
  const std::vector<std::vector<std::byte>> bad = {
      first({{100, 5, kFlush}}, ""),
      first({{100, 5, kCopy}, {100, 6, kFlush}}, "hello"),
      first({{100, 5, kCopy}, {99, 5, kFlush}}, "hello"),
      first({{100, 5, kFlush}, {100, 5, kCopy}}, "hello"),
  };
  for (std::size_t index = 0; index < bad.size(); ++index) {
    SetUp();
    EXPECT_EQ(deliver(bad[index]).code(), ErrorCode::Unsupported) << "message " << index;
    EXPECT_EQ(responder_->counters().refused, 1u) << "message " << index;
    EXPECT_EQ(responder_->counters().copied_bytes, 0u) << "message " << index;
  }
  const std::vector<std::vector<std::byte>> good = {
      first({{100, 5, kCopy | kFlush}}, "hello"),
      first({{100, 5, kCopy}, {100, 5, kFlush}}, "hello"),
      first({{100, 5, kCopy}}, "hello"),
  };
  for (std::size_t index = 0; index < good.size(); ++index) {
    SetUp();
    const auto handled = deliver(good[index]);
    EXPECT_TRUE(handled.ok()) << "message " << index << ": " << handled.error().message;
  }
  flushes_writes_ = true;
  SetUp();
  EXPECT_TRUE(deliver(bad[0]).ok());
}

// A watermark has 24 bits of a session's number.
TEST_F(ResponderTest, WhatASessionLeavesIsNoneOfANewOneWhoseNumberLooksAlike) {
  const ReceiveQueue queue{kDepth, 1024};
  const pmem::Range area{kExported, queue.persistent_bytes()};
  std::byte* const buffers = region_->bytes().data() + area.at;
  store(buffers, encode(Watermark{7, 0}));
  for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
    MessageHeader header = header_of(sequence, 5);
    header.flags |= kReplayable;
    const auto bytes = message_of(header, {{8 * sequence, 5, kCopy | kFlush}}, "older");
    std::copy(bytes.begin(), bytes.end(),
              buffers + kWatermarkBytes + (sequence - 1) * queue.message_bytes_max);
  }
  std::vector<std::byte> left(region_->bytes().begin(), region_->bytes().end());
  EXPECT_EQ(replay_messages(*region_, {0, kExported}, area, queue).value(), 3u);
  EXPECT_EQ(replay_messages(*region_, {0, kExported}, area, queue).value(), 0u);

  keeps_messages_ = true;
  open(true);
  std::copy(left.begin() + kExported, left.end(), region_->bytes().begin() + kExported);
  Responder::Options options;
  options.exported = {0, kExported};
  options.queue = queue;
  options.session = kLookAlike;
  options.persistent_buffers = area;
  ASSERT_TRUE(Responder::open(*far_, *device_, *region_, options).ok());
  EXPECT_EQ(replay_messages(*region_, {0, kExported}, area, queue).value(), 0u);
  EXPECT_EQ(region_->bytes()[8], std::byte{0});
}

TEST_F(ResponderTest, NonsenseIsRefusedAndCounted) {
  const auto good = message_of(header_of(1, 5), {{0, 5, kCopy}}, "hello");
  auto wrong_session = header_of(1, 5);
  wrong_session.session = 8;
  auto replayable = header_of(1, 5);
  replayable.flags |= kReplayable;
  const std::vector<std::vector<std::byte>> bad = {
      std::vector<std::byte>(10),                                    // shorter than a header
      std::vector<std::byte>(good.begin(), good.end() - 1),          // shorter than it says
      message_of(header_of(2, 5), {{0, 5, kCopy}}, "hello"),         // one is missing before
      message_of(wrong_session, {{0, 5, kCopy}}, "hello"),           // of another session
      message_of(replayable, {{0, 5, kCopy}}, "hello"),              // buffers are in DRAM
      message_of(header_of(1, 5), {{0, 4, kCopy}}, "hello"),         // payload left over
      message_of(header_of(1, 5), {{0, 5, 0x80 | kCopy}}, "hello"),  // unknown action
  };
  for (std::size_t index = 0; index < bad.size(); ++index) {
    SetUp();
    EXPECT_EQ(deliver(bad[index]).code(), ErrorCode::ProtocolError) << "message " << index;
    EXPECT_EQ(responder_->counters().refused, 1u) << "message " << index;
    EXPECT_EQ(responder_->counters().copied_bytes, 0u) << "message " << index;
  }
}

TEST_F(ResponderTest, ARequesterIsToldThatItsUpdateWasRefused) {
  Requester::Options options;
  options.remote = {0, 0, 2 * kExported};  // believes the pool to be larger than it is
  options.queue = {32, 1024};
  options.session = 7;
  plan::Update update;
  update.shape = singleton();
  update.primary = Primary::Send;
  const auto method = plan::plan(profile_, update);
  ASSERT_TRUE(method.ok());
  auto requester = Requester::open(*near_, *client_, profile_, {*method}, options);
  ASSERT_TRUE(requester.ok()) << requester.error().message;
  UpdateItem item{kExported, {buffer_.data(), 64, buffer_memory_.get()}};
  ASSERT_TRUE((*requester)->begin(0, std::span<const UpdateItem>(&item, 1)).ok());
  Result<void> polled;
  for (int round = 0; round < 1000 && polled.ok(); ++round) {
    (void)responder_->pump();
    polled = (*requester)->poll();
  }
  ASSERT_FALSE(polled.ok());
  EXPECT_EQ(polled.code(), ErrorCode::OutOfRange);
  EXPECT_EQ((*requester)->resolved(), 0u);
}

/// Items that are refused before anything is posted, whatever the size of the pool.
class RefusedItems : public ResponderTest {
 protected:
  void connect(Primary primary, std::uint64_t pool_bytes) {
    Requester::Options options;
    options.remote = {1, 0, pool_bytes};
    options.queue = {32, 1024};
    options.session = 7;
    plan::Update update;
    update.shape = singleton();
    update.primary = primary;
    auto requester = Requester::open(*near_, *client_, profile_,
                                     {plan::plan(profile_, update).value()}, options);
    ASSERT_TRUE(requester.ok()) << requester.error().message;
    requester_ = std::move(*requester);
  }
  ErrorCode refusal(std::uint64_t at, std::size_t length) {
    const UpdateItem item{at, {buffer_.data(), length, buffer_memory_.get()}};
    const auto begun = requester_->begin(0, std::span<const UpdateItem>(&item, 1));
    EXPECT_FALSE(begun.ok());
    EXPECT_EQ(requester_->begun(), 0u);
    return begun.ok() ? ErrorCode::SystemError : begun.code();
  }

  std::unique_ptr<Requester> requester_;
};

TEST_F(RefusedItems, LieOutsideThePoolOrDoNotFitIntoAMessage) {
  connect(Primary::Send, kExported);
  EXPECT_EQ(refusal(kExported - 10, 64), ErrorCode::OutOfRange);
  EXPECT_EQ(refusal(UINT64_MAX - 10, 64), ErrorCode::OutOfRange);
  EXPECT_EQ(refusal(0, 0), ErrorCode::OutOfRange);
  EXPECT_EQ(refusal(0, 1024), ErrorCode::InvalidArgument);  // with its header
}

// An entry of a message has 32 bits for a length, and a transport its own limit.
TEST_F(RefusedItems, AreTooLongForOneRequest) {
  connect(Primary::Write, std::uint64_t{1} << 40);
  const std::uint64_t longest = requester_->item_bytes_max();
  EXPECT_LE(longest, std::numeric_limits<std::uint32_t>::max());
  EXPECT_LE(longest, near_->limits().transfer_bytes_max);
  EXPECT_EQ(refusal(0, longest + 1), ErrorCode::OutOfRange);
  EXPECT_EQ(refusal(0, std::uint64_t{1} << 32), ErrorCode::OutOfRange);
}

}  // namespace
}  // namespace perdure::persist
